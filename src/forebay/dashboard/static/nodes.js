// The nodes: one card each, in the order of their names, so that none jumps about.
import { keepChildren, setAttribute, setText } from "./dom.js";
import { onLanguage, word } from "./words.js";
import { makeCard, updateCard } from "./node_card.js";

const MANY = 12; // from here on cards are compact and there is a field to find one
const list = document.getElementById("nodes-list");
const filter = document.getElementById("nodes-filter");
const field = filter.querySelector("input");
let shown = { nodes: [], admin: false };

/** Show the nodes of a snapshot; an admin may drain and resume them. */
export function showNodes(nodes, admin) {
  shown = { nodes, admin };
  const up = nodes.filter((node) => node.state === "online").length;
  setText(document.getElementById("nodes-count"), nodes.length ? word("nodes_count", { up, total: nodes.length }) : "");
  filter.hidden = nodes.length <= MANY;
  list.classList.toggle("compact", nodes.length > MANY);
  setAttribute(list, "tabindex", nodes.length > MANY ? 0 : null); // a long list scrolls, also by key
  const sought = filter.hidden ? "" : field.value.trim().toLowerCase();
  const found = nodes
    .filter((node) => textOf(node).includes(sought))
    .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  keepChildren(list, found, {
    key: ({ name }) => name,
    create: makeCard,
    update: (card, node) => updateCard(card, node, admin),
  });
  const empty = document.getElementById("nodes-empty");
  empty.hidden = found.length > 0;
  setText(empty, word(nodes.length ? "nodes_no_match" : "nodes_empty"));
}

field.addEventListener("input", () => showNodes(shown.nodes, shown.admin));
onLanguage(() => showNodes(shown.nodes, shown.admin));

function textOf({ name, kind, state, models }) {
  return [name, kind, state, word(`state_${state}`), ...models].join(" ").toLowerCase();
}
