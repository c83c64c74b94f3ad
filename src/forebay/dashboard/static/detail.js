// One thing opened from a list: everything that its route tells of it, as it is.
import { make, setText } from "./dom.js";
import { keyHeaders } from "./key.js";
import { currentLanguage, word } from "./words.js";

const TEXT_MAX = 200000; // characters; more than this nobody reads here
const LIMIT_MS = 8000;
const dialog = document.getElementById("detail");
const [title, text] = [dialog.querySelector("h2"), dialog.querySelector("pre")];

dialog.querySelector("button").addEventListener("click", () => dialog.close());

/** Fill a cell with a button that opens what lies at a path; without a path it is text. */
export function showOpener(cell, name, path) {
  if (!cell.firstChild) {
    cell.append(make("button", { type: "button", class: "opener" }));
    cell.firstChild.addEventListener("click", () => open(cell.name, cell.path));
  }
  Object.assign(cell, { name, path });
  setText(cell.firstChild, name);
  cell.firstChild.disabled = !path;
}

async function open(name, path) {
  title.textContent = name;
  text.textContent = word("list_reading");
  dialog.showModal();
  try {
    const headers = { ...keyHeaders(), "Accept-Language": currentLanguage() };
    const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
    const body = await answer.json();
    if (title.textContent === name) text.textContent = JSON.stringify(body, null, 2).slice(0, TEXT_MAX);
  } catch (error) {
    text.textContent = word("action_failed", { message: error.message });
  }
}
