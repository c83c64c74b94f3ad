// Drain and resume: asked once more on the card itself, then done through the admin routes.
import { make, setAttribute, setText } from "./dom.js";
import { keyHeaders } from "./key.js";
import { currentLanguage, word } from "./words.js";

const aloud = document.getElementById("nodes-said");

/** Make the row of buttons of a node. */
export function makeActions(name) {
  const row = make("div", { class: "actions", hidden: true });
  row.name = name;
  row.start = make("button", { type: "button", class: "quiet" });
  row.sure = make("span", { class: "sure" });
  row.yes = make("button", { type: "button", class: "danger" });
  row.no = make("button", { type: "button", class: "quiet" });
  row.problem = make("p", { class: "problem", role: "alert", hidden: true });
  row.append(row.start, row.sure, row.yes, row.no, row.problem);
  row.asking = row.pending = false;
  row.start.addEventListener("click", () => {
    if (row.pending) return;
    if (row.drained) act(row, "resume");
    else ask(row, true);
  });
  row.yes.addEventListener("click", () => act(row, "drain"));
  row.no.addEventListener("click", () => ask(row, false));
  row.addEventListener("keydown", (event) => event.key === "Escape" && row.asking && ask(row, false));
  return row;
}

/** Show what may be done with the node now. */
export function updateActions(row, node, admin) {
  row.drained = node.state === "draining";
  if (row.drained) row.asking = false;
  row.hidden = !admin;
  draw(row);
}

function draw(row) {
  const { name: node, drained } = row;
  row.start.hidden = row.asking;
  row.sure.hidden = row.yes.hidden = row.no.hidden = !row.asking;
  setText(row.start, word(row.pending ? "node_busy" : drained ? "resume" : "drain"));
  setAttribute(row.start, "aria-label", row.pending ? null : word(drained ? "resume_node" : "drain_node", { node }));
  setAttribute(row.start, "aria-disabled", row.pending ? "true" : null); // disabled would lose the focus
  setText(row.sure, word("drain_sure", { node }));
  setText(row.yes, word("drain_yes"));
  setText(row.no, word("cancel"));
}

function ask(row, asking) {
  row.asking = asking;
  row.problem.hidden = true;
  draw(row);
  (asking ? row.yes : row.start).focus();
}

async function act(row, action) {
  row.asking = false;
  row.pending = true;
  row.problem.hidden = true;
  draw(row);
  row.start.focus();
  try {
    const headers = { ...keyHeaders(), "Accept-Language": currentLanguage() };
    const path = `/admin/nodes/${encodeURIComponent(row.name)}/${action}`;
    const answer = await fetch(path, { method: "POST", headers, signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error((await answer.json().catch(() => null))?.error?.message || `HTTP ${answer.status}`);
    row.drained = action === "drain";
    aloud.textContent = word(action === "drain" ? "node_drained" : "node_resumed", { node: row.name });
  } catch (error) {
    row.problem.hidden = false;
    setText(row.problem, word("action_failed", { message: error.message }));
  } finally {
    row.pending = false;
    draw(row);
  }
}
