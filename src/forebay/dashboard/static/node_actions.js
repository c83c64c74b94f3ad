// Drain and resume of one node, through the admin routes.
import { makeAction, updateAction } from "./action.js";
import { word } from "./words.js";

const aloud = document.getElementById("nodes-said");

/** Make the button of a node. */
export function makeActions() {
  return makeAction(aloud);
}

/** Show what may be done with the node now. */
export function updateActions(row, { name: node, state }, admin) {
  const path = `/admin/nodes/${encodeURIComponent(node)}/`;
  const drain = { label: word("drain"), name: word("drain_node", { node }), path: `${path}drain`,
    sure: word("drain_sure", { node }), yes: word("drain_yes"), done: word("node_drained", { node }) };
  const resume = { label: word("resume"), name: word("resume_node", { node }), path: `${path}resume`, done: word("node_resumed", { node }) };
  updateAction(row, admin ? (state === "draining" ? resume : drain) : null);
}
