// A button that changes something through HTTP: asked once more beside it where that matters, then done.
import { make, setAttribute, setText } from "./dom.js";
import { keyHeaders } from "./key.js";
import { currentLanguage, word } from "./words.js";

const LIMIT_MS = 10000;

/** Make the button; `aloud` is the element whose text is read to those who do not see. */
export function makeAction(aloud) {
  const row = make("div", { class: "actions", hidden: true });
  row.aloud = aloud;
  row.start = make("button", { type: "button", class: "quiet" });
  row.sure = make("span", { class: "sure" });
  row.yes = make("button", { type: "button", class: "danger" });
  row.no = make("button", { type: "button", class: "quiet" });
  row.problem = make("p", { class: "problem", role: "alert", hidden: true });
  row.append(row.start, row.sure, row.yes, row.no, row.problem);
  row.asking = row.pending = false;
  row.start.addEventListener("click", () => {
    if (row.pending) return;
    if (row.what.sure) ask(row, true);
    else act(row);
  });
  row.yes.addEventListener("click", () => act(row));
  row.no.addEventListener("click", () => ask(row, false));
  row.addEventListener("keydown", (event) => event.key === "Escape" && row.asking && ask(row, false));
  return row;
}

/**
 * Show what may be done now, or nothing (null): {label, name, sure, yes, no, method, path, done, after}.
 * `name` is the label for who does not see what it stands beside, `sure` the question (none: it is done at once),
 * `done` what is read aloud afterwards, `after` is called then. `paths` are several that are called in turn.
 */
export function updateAction(row, what) {
  row.hidden = !what;
  if (!what) return;
  if (row.what?.path !== what.path) row.asking = false;
  row.what = what;
  draw(row);
}

/** Return how something is cancelled. */
export function cancelAction(what, method, path) {
  return {
    label: word("cancel_it"), name: word("cancel_what", { what }), sure: word("cancel_sure", { what }), yes: word("cancel_yes"),
    no: word("cancel_no"), method, path, done: word("cancelled_what", { what }),
  };
}

function draw(row) {
  const { label, name, sure, yes, no } = row.what;
  row.start.hidden = row.asking;
  row.sure.hidden = row.yes.hidden = row.no.hidden = !row.asking;
  setText(row.start, row.pending ? word("asking") : label);
  setAttribute(row.start, "aria-label", row.pending ? null : name);
  setAttribute(row.start, "aria-disabled", row.pending ? "true" : null); // disabled would lose the focus
  setText(row.sure, sure || "");
  setText(row.yes, yes || "");
  setText(row.no, no ?? word("cancel"));
}

function ask(row, asking) {
  row.asking = asking;
  row.problem.hidden = true;
  draw(row);
  (asking ? row.yes : row.start).focus();
}

async function act(row) {
  const { method = "POST", path, paths = [path], done, after } = row.what;
  row.asking = false;
  row.pending = true;
  row.problem.hidden = true;
  draw(row);
  row.start.focus();
  try {
    const headers = { ...keyHeaders(), "Accept-Language": currentLanguage() };
    for (const each of paths) {
      const answer = await fetch(each, { method, headers, signal: AbortSignal.timeout(LIMIT_MS) });
      const gone = answer.status === 404 && paths.length > 1; // of many, some end meanwhile
      if (!answer.ok && !gone) throw new Error((await answer.json().catch(() => null))?.error?.message || `HTTP ${answer.status}`);
    }
    row.aloud.textContent = done;
    after?.();
  } catch (error) {
    row.problem.hidden = false;
    setText(row.problem, word("action_failed", { message: error.message }));
  } finally {
    row.pending = false;
    draw(row);
  }
}
