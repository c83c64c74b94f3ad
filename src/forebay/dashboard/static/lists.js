// The lists of the page: what each reads, its columns, and what may be done with a row.
import { keyList } from "./admin_lists.js";
import { cancelAction as cancel } from "./action.js";
import { showOpener } from "./detail.js";
import { Listing } from "./listing.js";
import { requestList } from "./queue_lists.js";
import { usageList, userList } from "./usage.js";
import { dateTime, longDuration, number, word, wordOr } from "./words.js";

const or = (value) => value ?? word("none");
const at = (path) => encodeURIComponent(path);
const time = (seconds) => (seconds ? dateTime(seconds * 1000) : word("none"));

const owner = { name: "key_name", when: (rows) => rows.some((row) => row.owner), value: (row) => row.owner, text: (row) => row.owner || word("none") };
const lists = [];
const MODELS = 3; // that a cell names

/** Make the lists, folded and hidden. */
export function startLists() {
  lists.push(requestList(), userList(), usageList(), jobs(), batches(), sessions(), keyList());
}

/** Show the lists to an admin, and to who has a key: they see their own; a wall shows none. */
export function showLists({ admin, key }) {
  for (const list of lists) list.allow(admin || (key && !list.admins));
}

function jobs() {
  return new Listing({
    name: "job-list",
    title: "job_list_title",
    empty: "job_list_empty",
    key: ({ id }) => id,
    look: ({ status }) => status,
    choices: [["", "list_all"], ["queued", "job_queued"], ["running", "job_running"], ["completed", "job_completed"],
      ["failed", "job_failed"], ["cancelled", "job_cancelled"]],
    columns: [
      { name: "job", value: ({ id }) => id, fill: (cell, { id }) => showOpener(cell, String(id), `/jobs/${id}`) },
      { name: "node_state", value: ({ status }) => status, text: ({ status }) => wordOr("job_", status) },
      owner,
      { name: "job_type", value: ({ type }) => type, text: ({ type }) => type },
      { name: "models_model", value: ({ model }) => model, text: ({ model }) => or(model) },
      { name: "try_priority", value: ({ priority }) => priority, text: ({ priority }) => wordOr("priority_", priority) },
      { name: "attempt", end: true, value: ({ attempt }) => attempt, text: ({ attempt }) => number(attempt) },
      { name: "created", end: true, value: ({ created_at }) => created_at, text: ({ created_at }) => time(created_at) },
      { name: "took", end: true, text: ({ started_at: from, finished_at: to }) => (from && to ? longDuration(to - from) : word("none")) },
      { name: "error", text: ({ error }) => error || "" },
    ],
    act: ({ id, status }) => {
      const what = word("job_named", { id });
      if (status === "queued" || status === "running") return cancel(what, "DELETE", `/jobs/${id}`);
      if (status !== "failed" && status !== "cancelled") return null;
      return { label: word("retry"), name: word("retry_what", { what }), path: `/jobs/${id}/retry`, done: word("retried_what", { what }) };
    },
    read: async ({ choice, limit, get }) => {
      const { data, has_more: more } = await get(`/jobs?limit=${limit}${choice && `&status=${choice}`}`);
      return { rows: data, more: more ?? data.length >= limit };
    },
  });
}

function batches() {
  const ended = ["completed", "failed", "expired", "cancelled", "cancelling"];
  return new Listing({
    name: "batch-list",
    title: "batch_list_title",
    empty: "batch_list_empty",
    key: ({ id }) => id,
    look: ({ status }) => status,
    choices: [["", "list_all"], ...["validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"].map((name) => [name, `batch_${name}`])],
    columns: [
      { name: "batch", value: ({ id }) => id, fill: (cell, { id }) => showOpener(cell, id, `/v1/batches/${at(id)}`) },
      { name: "node_state", value: ({ status }) => status, text: ({ status }) => wordOr("batch_", status) },
      owner,
      { name: "models_title", value: ({ models = [] }) => models.join(", "), text: ({ models }) => some(models) },
      { name: "endpoint", text: ({ endpoint }) => endpoint },
      { name: "job_completed", end: true, value: ({ request_counts: { completed } }) => completed,
        text: ({ request_counts: { completed, total } }) => word("jobs_lines", { done: completed, lines: total }) },
      { name: "job_failed", end: true, value: ({ request_counts: { failed } }) => failed, text: ({ request_counts: { failed } }) => number(failed) },
      { name: "created", end: true, value: ({ created_at }) => created_at, text: ({ created_at }) => time(created_at) },
    ],
    act: ({ id, status }) => (ended.includes(status) ? null : cancel(id, "POST", `/v1/batches/${at(id)}/cancel`)),
    read: async ({ choice, limit, get }) => {
      const rows = [];
      let more = true;
      while (more && rows.length < limit) { // the route gives 100 at most
        const page = Math.min(limit - rows.length, 100);
        const after = rows.length ? `&after=${at(rows.at(-1).id)}` : "";
        const { data, has_more: others } = await get(`/v1/batches?limit=${page}${after}${choice && `&status=${choice}`}`);
        rows.push(...data);
        more = others && data.length > 0;
      }
      return { rows, more };
    },
  });
}

/** The first names, and how many more there are; a gateway of an older version tells none. */
function some(names = []) {
  const more = names.length - MODELS;
  return more > 0 ? `${names.slice(0, MODELS).join(", ")} +${number(more)}` : names.join(", ") || word("none");
}

function sessions() {
  return new Listing({
    name: "session-list",
    title: "fact_sessions",
    empty: "sessions_empty",
    key: ({ sessionId }) => sessionId,
    look: ({ status }) => status,
    columns: [
      { name: "session", value: ({ sessionId }) => sessionId, fill: (cell, { sessionId }) => showOpener(cell, sessionId, `/session/${at(sessionId)}`) },
      { name: "node_state", value: ({ status }) => status, text: ({ status }) => wordOr("session_", status) },
      owner,
      { name: "models_model", value: ({ model }) => model, text: ({ model }) => model },
      { name: "fact_pending", end: true, value: ({ pending }) => pending, text: ({ pending }) => number(pending) },
      { name: "session_turns", end: true, value: ({ turns }) => turns, text: ({ turns }) => number(turns) },
      { name: "created", end: true, value: ({ createdAt }) => createdAt, text: ({ createdAt }) => time(createdAt) },
      { name: "session_used", end: true, value: ({ usedAt }) => usedAt, text: ({ usedAt }) => time(usedAt) },
    ],
    act: ({ sessionId, status }) => (status === "closing" ? null : {
      label: word("close"), name: word("session_close", { id: sessionId }), sure: word("session_close_sure"), yes: word("session_close_yes"),
      method: "DELETE", path: `/session/${at(sessionId)}`, done: word("session_closed", { id: sessionId }),
    }),
    read: async ({ limit, get }) => {
      const { data, has_more: more } = await get(`/session?limit=${limit}`);
      return { rows: data, more };
    },
  });
}
