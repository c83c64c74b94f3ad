// Who is in line, request by request.
import { cancelAction } from "./action.js";
import { showOpener } from "./detail.js";
import { Listing } from "./listing.js";
import { duration, number, word, wordOr } from "./words.js";

const REQUESTS = "/v1/queue/requests";
const or = (value) => value ?? word("none");

/** Make the list of requests. */
export function requestList() {
  return new Listing({
    name: "in-line",
    title: "in_line_title",
    empty: "in_line_empty",
    key: ({ id, arrived }) => `${id} ${arrived}`,
    look: ({ state }) => state,
    choices: [["", "in_line_now"], ["waiting", "state_waiting"], ["running", "state_running"], ["ended", "state_ended"]],
    columns: [
      { name: "request", value: ({ id }) => id, fill: showRequest },
      { name: "node_state", value: ({ state, outcome }) => outcome ?? state, text: stateOf },
      { name: "user", value: ({ user }) => user, text: ({ user }) => or(user) },
      { name: "models_model", value: ({ model }) => model, text: ({ model }) => model },
      { name: "try_priority", value: ({ priority }) => priority, text: ({ priority }) => wordOr("priority_", priority) },
      { name: "place", end: true, value: ({ position }) => position, text: ({ position }) => (position ? number(position) : word("none")) },
      { name: "waited", end: true, value: ({ waited_seconds }) => waited_seconds, text: ({ waited_seconds }) => duration(waited_seconds) },
      { name: "models_estimate", end: true, value: ({ estimated_wait_seconds: wait }) => wait?.p50, text: ({ estimated_wait_seconds: wait }) => duration(wait?.p50) },
      { name: "node", value: ({ node }) => node, text: ({ node }) => or(node) },
      { name: "prompt_tokens", end: true, value: ({ prompt_tokens }) => prompt_tokens, text: ({ prompt_tokens }) => number(prompt_tokens) },
    ],
    act: ({ id, state }) => (state === "ended" ? null : cancelAction(word("request_named", { id }), "DELETE", `/v1/queue/${encodeURIComponent(id)}`)),
    read: async ({ choice, limit, get }) => {
      const pages = await Promise.all((choice ? [choice] : ["running", "waiting"]).map((state) => get(`${REQUESTS}?state=${state}&limit=${limit}`)));
      const rows = pages.flatMap(({ data }) => data);
      if (choice !== "ended") rows.sort((a, b) => (a.position ?? 0) - (b.position ?? 0)); // what runs, then the line from its front
      return { rows, more: pages.some(({ has_more }) => has_more) };
    },
  });
}

function showRequest(cell, { id, state }) {
  showOpener(cell, id, state === "ended" ? null : `/v1/queue/${encodeURIComponent(id)}`);
}

function stateOf({ state, outcome, status }) {
  if (state !== "ended") return word(`state_${state}`);
  return status ? `${wordOr("outcome_", outcome)} (${status})` : wordOr("outcome_", outcome);
}
