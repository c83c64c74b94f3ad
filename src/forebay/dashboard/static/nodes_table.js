// The nodes as a table, from nine on: one row each, those in trouble on top.
import { make, setAttribute, setText } from "./dom.js";
import { makeActions, updateActions } from "./node_actions.js";
import { failuresOf, recentError } from "./node_card.js";
import { DataTable } from "./table.js";
import { bytesOf, longDuration, number, percent, word } from "./words.js";

const MODELS_MAX = 3; // more than this are counted

/** Make the table; `isAdmin()` says whether nodes may be drained. */
export function makeNodesTable(isAdmin) {
  const failing = (node) => Object.values(node.failures_15_minutes).reduce((sum, count) => sum + count, 0);
  return new DataTable({
    title: "nodes_title",
    key: ({ name }) => name,
    look: ({ state }) => state,
    columns: [
      { name: "node", value: ({ name }) => name, fill: showName },
      { name: "node_state", value: ({ state }) => state, fill: showState },
      { name: "slots", end: true, value: ({ in_flight }) => in_flight, text: ({ in_flight, slots }) => `${in_flight} / ${slots}` },
      { name: "gpu", end: true, when: (nodes) => nodes.some(({ gpu_load }) => gpu_load !== null), value: ({ gpu_load }) => gpu_load,
        text: ({ gpu_load }) => (gpu_load === null ? word("none") : percent(gpu_load)) },
      { name: "vram", end: true, when: (nodes) => nodes.some(({ vram_total_bytes }) => vram_total_bytes), value: ({ vram_used_bytes }) => vram_used_bytes, text: memory },
      { name: "speed", end: true, when: (nodes) => nodes.some(({ speed }) => (speed ?? null) !== null), value: ({ speed }) => speed,
        text: ({ speed }) => ((speed ?? null) === null ? word("none") : `${number(speed, 2)} ×`) },
      { name: "models_title", fill: showModels },
      { name: "failures", end: true, value: failing, fill: (cell, node) => {
        setText(cell, String(failing(node)));
        setAttribute(cell, "title", failuresOf(node) || null);
        setAttribute(cell, "data-any", failing(node) ? "yes" : null);
      } },
      { name: "node_actions", fill: (cell, node) => {
        if (!cell.firstChild) cell.append(makeActions());
        updateActions(cell.firstChild, node, isAdmin());
      } },
    ],
  });
}

/** Return the nodes, those in trouble first, each group by name. */
export function troubledFirst(nodes) {
  const rank = (node) => (node.state === "offline" ? 0 : node.failing.length || failuresOf(node) ? 1 : node.state === "online" ? 3 : 2);
  return [...nodes].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, "en", { numeric: true }));
}

function showName(cell, { name, kind }) {
  if (!cell.firstChild) cell.append(make("span", { class: "node-name" }), make("small"));
  setText(cell.children[0], name);
  setText(cell.children[1], kind);
}

function showState(cell, { state, state_seconds }) {
  if (!cell.firstChild) cell.append(make("span", { class: "state" }), make("small"));
  setText(cell.children[0], word(`state_${state}`));
  setText(cell.children[1], longDuration(state_seconds));
}

function memory({ vram_used_bytes: used, vram_total_bytes: total }) {
  return used !== null && total ? bytesOf(used, total) : word("none");
}

/** What it has in memory, else what it offers; of a node in trouble, its last error. */
function showModels(cell, node) {
  const error = recentError(node);
  const names = node.loaded?.length ? node.loaded : node.models;
  const more = Math.max(0, (node.loaded?.length ?? node.models_total) - MODELS_MAX);
  const text = error || [...names.slice(0, MODELS_MAX), ...(more ? [word("models_others", { count: more })] : [])].join(", ");
  setText(cell, text || word("none"));
  setAttribute(cell, "class", error ? "last-error" : "model-names");
  setAttribute(cell, "title", error || node.models.join(", "));
}
