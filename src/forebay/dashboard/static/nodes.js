// The nodes: a card each in the order of their names, so that none jumps about; from nine on, a table.
import { keepChildren, setText } from "./dom.js";
import { withOptions } from "./commands.js";
import { onLanguage, word } from "./words.js";
import { makeCard, updateCard } from "./node_card.js";
import { makeNodesTable, troubledFirst } from "./nodes_table.js";

const MANY = 9; // from here on there is a table, and a field to find one
const list = document.getElementById("nodes-list");
const frame = document.getElementById("nodes-table");
const filter = document.getElementById("nodes-filter");
const field = filter.querySelector("input");
const table = makeNodesTable(() => shown.admin);
let shown = { nodes: [], admin: false };

/** Show the nodes of a snapshot; an admin may drain and resume them. */
export function showNodes(nodes, admin) {
  shown = { nodes, admin };
  const up = nodes.filter((node) => node.state === "online").length;
  const many = nodes.length >= MANY;
  setText(document.getElementById("nodes-count"), nodes.length ? word("nodes_count", { up, total: nodes.length }) : "");
  filter.hidden = !many;
  list.hidden = many || !nodes.length;
  const sought = many ? field.value.trim().toLowerCase() : "";
  const found = troubledFirst(nodes).filter((node) => textOf(node).includes(sought));
  frame.hidden = !many || !found.length;
  if (many) table.show(found);
  keepChildren(list, many ? [] : byName(found), {
    key: ({ name }) => name,
    create: makeCard,
    update: (card, node) => updateCard(card, node, admin),
  });
  const empty = document.getElementById("nodes-empty");
  empty.hidden = found.length > 0;
  setText(empty, withOptions(word(nodes.length ? "nodes_no_match" : "nodes_empty")));
}

frame.append(table.element);
field.addEventListener("input", () => showNodes(shown.nodes, shown.admin));
onLanguage(() => showNodes(shown.nodes, shown.admin));

function byName(nodes) {
  return [...nodes].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

function textOf({ name, kind, state, models }) {
  return [name, kind, state, word(`state_${state}`), ...models].join(" ").toLowerCase();
}
