// The dialog in which an admin makes a key: a form, then the text of the key, shown once.
import { make, setText } from "./dom.js";
import { keyHeaders, useKey } from "./key.js";
import { currentLanguage, word, wordOr } from "./words.js";

const LIMIT_MS = 10000;
const dialog = document.getElementById("new-key");
const form = document.getElementById("new-key-form");
const made = document.getElementById("new-key-made");
const text = document.getElementById("new-key-text");
const problem = form.querySelector(".problem");
const submit = form.querySelector("[type=submit]");
let priorities = [];
let first = false; // whether there is no key yet
let after = () => {};
let pending = false;

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!pending) send();
});
// A field that is folded away cannot be shown as wrong: nothing at all would seem to happen.
const unfold = ({ target }) => target.closest("details")?.setAttribute("open", "");
form.addEventListener("invalid", unfold, { capture: true });
document.getElementById("new-key-cancel").addEventListener("click", () => pending || dialog.close());
document.getElementById("new-key-close").addEventListener("click", () => dialog.close());
dialog.addEventListener("cancel", (event) => (pending || !made.hidden) && event.preventDefault()); // Escape would lose the key
dialog.addEventListener("close", () => setText(text, ""));

/** The classes of this gateway, the most urgent first. */
export function offerKeyPriorities(names) {
  priorities = names;
}

/** Open the form; `isFirst` says that the gateway has no key, `onMade` is called when one was made. */
export function openNewKey({ isFirst, onMade }) {
  [first, after] = [isFirst, onMade];
  form.reset();
  form.hidden = false;
  made.hidden = problem.hidden = true;
  form.elements.max_priority.replaceChildren(...priorities.map((name) => make("option", { value: name }, wordOr("priority_", name))));
  document.getElementById("new-key-first").hidden = !first;
  form.elements.admin.checked = form.elements.admin.disabled = first;
  wait(false);
  dialog.showModal();
}

function wait(on) {
  pending = on;
  setText(submit, word(on ? "asking" : "key_make"));
}

/** What the form says, as the route takes it: what is empty is left out. */
function asked() {
  const told = { admin: form.elements.admin.checked, trust_user: form.elements.trust_user.checked };
  for (const [name, value] of new FormData(form)) {
    const plain = value.trim();
    if (!plain || name in told) continue;
    if (name === "models") told.models = plain.split(",").map((one) => one.trim()).filter(Boolean);
    else told[name] = form.elements[name].type === "number" ? Number(plain) : plain;
  }
  return told;
}

async function send() {
  wait(true);
  problem.hidden = true;
  try {
    const headers = { ...keyHeaders(), "Accept-Language": currentLanguage(), "Content-Type": "application/json" };
    const answer = await fetch("/admin/keys", { method: "POST", headers, body: JSON.stringify(asked()), signal: AbortSignal.timeout(LIMIT_MS) });
    const told = await answer.json().catch(() => null);
    if (!answer.ok || !told) throw new Error(told?.error?.message || `HTTP ${answer.status}`);
    show(told);
  } catch (error) {
    problem.hidden = false;
    setText(problem, word("action_failed", { message: error.message }));
  } finally {
    wait(false);
  }
}

function show({ name, key }) {
  form.hidden = true;
  made.hidden = false;
  setText(document.getElementById("new-key-about"), word("key_made", { name }));
  setText(text, key);
  if (!dialog.open) dialog.showModal(); // closed meanwhile: it is not shown again
  made.querySelector(".copy").focus();
  if (first) useKey(key); // else this page would be shut out
  after();
}
