// What was used: a chart of the last 24 hours, a table by user, model or key, and the same as CSV.
import { cancelAction } from "./action.js";
import { Chart } from "./chart.js";
import { make, setText } from "./dom.js";
import { saveWithKey } from "./links.js";
import { Listing } from "./listing.js";
import { clockAxis } from "./scale.js";
import { clockTime, number, percent, word } from "./words.js";

const HOURS = 24;
const HOUR_MS = 3600000;
const EVERY_MS = 10000; // the gateway sums these up in its database
const REQUESTS = "/v1/queue/requests";
const LOOKS = ["look-1", "served"]; // of the two series
const ALL = 1000; // as many as the route tells at once

/** Make the section of usage. */
export function usageList() {
  const drawing = new UsageChart();
  const figure = (field) => ({ name: field, end: true, value: (row) => row[field], text: (row) => number(row[field]) });
  return new Listing({
    name: "usage",
    title: "usage_title",
    empty: "usage_empty",
    everyMs: EVERY_MS,
    head: drawing,
    key: ({ name }) => name,
    choices: [["user", "usage_by_user"], ["model", "usage_by_model"], ["key", "usage_by_key"]],
    columns: [
      { name: "usage_name", value: ({ name }) => name, text: ({ name }) => name || word("none") },
      { ...figure("requests"), name: "usage_requests" }, figure("prompt_tokens"), figure("output_tokens"),
    ],
    read: async ({ choice, limit, get }) => {
      const { data } = await get(`/v1/usage?by=${choice}`);
      drawing.take(data);
      const rows = summed(data, choice).sort((a, b) => b.output_tokens - a.output_tokens || b.requests - a.requests);
      return { rows: rows.slice(0, limit), more: rows.length > limit };
    },
  });
}

/** Make the list of users: what they wait for now, and what they used in this hour and the one before. */
export function userList() {
  const figure = (name) => ({ name, end: true, value: (row) => row[name], text: (row) => number(row[name]) });
  let usage = { data: [] };
  let readAt = -Infinity;
  return new Listing({
    name: "users",
    title: "users_title",
    empty: "users_empty",
    admins: true,
    key: ({ name }) => name,
    columns: [
      { name: "user", value: ({ name }) => name, text: ({ name }) => name || word("none") },
      figure("waiting"), figure("processing"), figure("requests"), figure("tokens"),
      { name: "users_share", end: true, value: ({ share }) => share, text: ({ share }) => (share === null ? word("none") : percent(share)) },
    ],
    act: ({ name, lines }) => lines.length ? {
      ...cancelAction(word("users_line", { count: lines.length, user: name || word("none") }), "DELETE", name),
      paths: lines.map((id) => `/v1/queue/${encodeURIComponent(id)}`),
    } : null,
    read: async ({ limit, get }) => {
      const live = await Promise.all(["waiting", "running"].map((state) => get(`${REQUESTS}?state=${state}&limit=${ALL}`)));
      if (performance.now() - readAt > EVERY_MS) {
        usage = await get(`/v1/usage?by=user&from=${new Date(Date.now() - HOUR_MS).toISOString()}`);
        readAt = performance.now();
      }
      const rows = byUser(live[0].data, live[1].data, usage.data);
      return { rows: rows.slice(0, limit), more: rows.length > limit };
    },
  });
}

/** Return a row for each user, the busiest now first, then by tokens. */
function byUser(waiting, running, usage) {
  const users = new Map(summed(usage, "user").map((row) => [row.name, { ...row, tokens: row.prompt_tokens + row.output_tokens }]));
  const all = [...users.values()].reduce((sum, { tokens }) => sum + tokens, 0);
  const none = { requests: 0, tokens: 0 };
  for (const { user } of [...waiting, ...running]) if (!users.has(user)) users.set(user, { name: user, ...none });
  for (const row of users.values()) Object.assign(row, { waiting: 0, processing: 0, lines: [], share: all ? row.tokens / all : null });
  for (const { id, user } of waiting) users.get(user).lines.push(id);
  for (const row of users.values()) row.waiting = row.lines.length;
  for (const { user } of running) users.get(user).processing += 1;
  const now = ({ waiting: line, processing }) => line + processing;
  return [...users.values()].sort((a, b) => now(b) - now(a) || b.tokens - a.tokens || a.name.localeCompare(b.name, "en"));
}

/** Return one row for each name, summed over the hours. */
function summed(data, by) {
  const rows = new Map();
  for (const row of data) {
    const name = row[by] ?? "";
    const sum = rows.get(name) ?? { name, requests: 0, prompt_tokens: 0, output_tokens: 0 };
    for (const field of ["requests", "prompt_tokens", "output_tokens"]) sum[field] += row[field];
    rows.set(name, sum);
  }
  return [...rows.values()];
}

/** Tokens by the hour, and a link to all of it as CSV. */
class UsageChart {
  constructor() {
    this.chart = new Chart({ height: 120, whole: true, format: (value) => number(value) });
    this.title = make("h3");
    this.legend = make("ul", { class: "legend" }, ...["prompt_tokens", "output_tokens"].map((name, i) =>
      make("li", {}, make("span", { class: `swatch ${LOOKS[i]}`, "aria-hidden": "true" }), make("span", { class: "legend-name", "data-word": name }))));
    this.link = make("a", { href: "/v1/usage?format=csv", download: "usage.csv", "data-word": "usage_csv" });
    this.link.addEventListener("click", saveWithKey);
    this.element = make("figure", { class: "figure usage-chart" },
      make("div", { class: "figure-head" }, this.title, this.legend, this.link), make("div", { class: "stage" }));
    this.element.lastChild.append(this.chart.element);
    this.take([]);
  }

  take(data) {
    this.first = (Math.floor(Date.now() / HOUR_MS) - HOURS + 1) * HOUR_MS;
    this.columns = ["prompt_tokens", "output_tokens"].map((field) => {
      const column = new Array(HOURS).fill(0);
      for (const row of data) {
        const hour = (Date.parse(row.hour) - this.first) / HOUR_MS;
        if (hour in column) column[hour] += row[field];
      }
      return column;
    });
  }

  draw() {
    setText(this.title, word("usage_chart"));
    const series = this.columns.map((column, i) => ({ at: (n) => column[n] ?? null, look: LOOKS[i] }));
    const times = { from: 0, to: HOURS, sampleMs: HOUR_MS, timeOf: (n) => this.first + n * HOUR_MS };
    this.chart.draw({ from: 0, to: HOURS, kind: "bars", series, across: clockAxis(times, clockTime) });
  }
}
