// The time line as a table: one row a minute, for those who would rather read it.
import { keepChildren, make, setText } from "./dom.js";
import { clockTime, duration, number, word } from "./words.js";

/** Fill the table of an open <details> with the minutes of a History, the newest first. */
export function fillTable(details, history) {
  const heads = ["table_minute", "table_most", "p50", "table_p95", "served", "rejected"].map((key) => word(key));
  const row = make("tr", {}, ...heads.map((head) => make("th", { scope: "col" }, head)));
  if (details.querySelector("thead").textContent !== row.textContent) details.querySelector("thead").replaceChildren(row);
  keepChildren(details.querySelector("tbody"), minutes(history), {
    key: ({ at }) => at,
    create: () => make("tr", {}, make("th", { scope: "row" }), ...heads.slice(1).map(() => make("td"))),
    update: (element, { at, cells }) => {
      [clockTime(at, false), ...cells].forEach((text, i) => setText(element.children[i], text));
    },
  });
}

function minutes(history) {
  const found = new Map();
  for (let n = history.last; n >= history.first; n -= 1) {
    const at = Math.floor(history.timeOf(n) / 60000) * 60000;
    if (!found.has(at)) found.set(at, { from: n, to: n });
    found.get(at).from = n;
  }
  return [...found].map(([at, { from, to }]) => ({ at, cells: cells(history, from, to) }));
}

function cells(history, from, to) {
  const { wait_p50_seconds, wait_p95_seconds, served, rejected } = history.columns;
  const depths = Object.values(history.depth);
  let most = 0;
  for (let n = from; n <= to; n += 1) {
    most = Math.max(most, depths.reduce((sum, column) => sum + (history.at(column, n) ?? 0), 0));
  }
  const sums = [served, rejected].map((column) => number(history.sum(column, from, to)));
  return [number(most), duration(history.at(wait_p50_seconds, to)), duration(history.at(wait_p95_seconds, to)), ...sums];
}
