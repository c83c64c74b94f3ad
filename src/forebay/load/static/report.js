// Draws a report from the data that stands in the page. What came from outside is only ever set as text.
import { Chart } from "./chart.js";
import { make, setText } from "./dom.js";
import { niceTicks } from "./scale.js";

const HEIGHT = 190;
const DECADES_FROM = 30; // times that differ by this factor are drawn by powers of ten
const MINUTES_FROM_S = 180;
const RANKS = [5, 25, 50, 75, 90, 95, 99]; // in the table
const PLACES = 200; // along an axis of times

/** Return a number with three digits that count. */
function digits(value) {
  const places = value === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
}

function duration(seconds) {
  return seconds < 0.9995 ? `${digits(seconds * 1000)} ms` : `${digits(seconds)} s`;
}

function percent(share) {
  return `${share} %`;
}

function count(value) {
  return Number.isInteger(value) ? value.toLocaleString("en") : digits(value);
}

/** Return a time for an axis, as short as it can be said. */
function axisDuration(seconds) {
  const short = (value, unit) => `${Number(value.toPrecision(4))} ${unit}`;
  if (seconds === 0) return "0";
  if (seconds < 1) return short(seconds * 1000, "ms");
  return seconds < MINUTES_FROM_S ? short(seconds, "s") : short(seconds / 60, "min");
}

/** Return an axis from 0 to a round time of at least `most`. */
function roundTimes(most, about) {
  const unit = most < 1 ? 0.001 : most < MINUTES_FROM_S ? 1 : 60;
  const { top, ticks } = niceTicks(most / unit, about);
  return { top: top * unit, ticks: ticks.map((tick) => tick * unit) };
}

/** Return an axis for durations: where one is placed, which one is at a place, and what to write at the ticks. */
function durationAxis(values, mayBeDecades) {
  const sorted = values.filter((value) => value > 0).sort((a, b) => a - b);
  const most = sorted.at(-1) ?? 1;
  const few = sorted[Math.floor(sorted.length * 0.05)] ?? most;
  const same = (value) => value;
  if (!mayBeDecades || most / few < DECADES_FROM) return { place: same, valueAt: same, ...roundTimes(most, 4), format: axisDuration };
  const low = Math.floor(Math.log10(Math.max(few / 2, most / 1e5)));
  const top = Math.ceil(Math.log10(most)) - low;
  const valueAt = (decade) => 10 ** (low + decade);
  return {
    valueAt,
    place: (value) => Math.max(0, Math.log10(value) - low),
    top,
    ticks: Array.from({ length: top + 1 }, (_, decade) => decade),
    format: (decade) => axisDuration(valueAt(decade)),
  };
}

function countAxis(values) {
  return { place: (value) => value, ...niceTicks(Math.max(0, ...values), 4), format: count };
}

/** Return the ticks of an axis of the time since the start. */
function elapsed(span_s, place) {
  return (about) => roundTimes(span_s, about).ticks
    .filter((at_s) => at_s <= span_s)
    .map((at_s) => ({ at: Math.max(0, place(at_s)), label: axisDuration(at_s) }));
}

/** What is drawn for each kind of figure, what the legend tells at a place, and the same as a table. */
const KINDS = {
  ranks: ({ curves }) => {
    const times = durationAxis(curves.flatMap(({ values }) => values), true);
    const timeAt = (n) => times.valueAt((n / PLACES) * times.top);
    const shareAt = (values, n) => Math.max(0, values.filter((value) => value <= timeAt(n)).length - 1);
    return {
      kind: "lines",
      to: PLACES,
      up: { top: 100, ticks: [0, 25, 50, 75, 100], format: percent },
      across: () => times.ticks.map((tick) => ({ at: (tick / times.top) * PLACES, label: times.format(tick) })),
      series: curves.map(({ look, values }) => ({ look, at: (n) => shareAt(values, n) })),
      moment: (n) => duration(timeAt(n)),
      read: ({ values }, n) => percent(shareAt(values, n)),
      columns: ["Priority", ...RANKS.map((rank) => `p${rank}`)],
      rows: curves.map(({ name, values }) => [name, ...RANKS.map((rank) => duration(values[rank]))]),
    };
  },
  lines: ({ curves, unit, span_s }) => {
    const known = curves.flatMap(({ values }) => values).filter((value) => value !== null);
    const [write, up] = unit === "count" ? [count, countAxis(known)] : [duration, durationAxis(known, false)];
    const show = (value) => (value === null ? "-" : write(value));
    const bins = curves[0].values;
    const width_s = span_s / bins.length;
    return {
      kind: "lines",
      to: bins.length - 1,
      up,
      across: elapsed(span_s, (at_s) => at_s / width_s - 0.5),
      series: curves.map(({ look, values }) => ({ look, at: (n) => values[n] })),
      moment: (n) => duration(n * width_s),
      read: ({ values }, n) => show(values[n]),
      columns: ["From", ...curves.map(({ name }) => name)],
      rows: bins.map((_, n) => [duration(n * width_s), ...curves.map(({ values }) => show(values[n]))]),
    };
  },
  dots: ({ curves, span_s }) => {
    const up = durationAxis(curves.flatMap(({ points }) => points.map(([, value]) => value)), true);
    return {
      kind: "dots",
      to: span_s,
      up,
      across: elapsed(span_s, (at_s) => at_s),
      series: curves.map(({ look, points }) => ({ look, points: points.map(([at_s, value]) => [at_s, up.place(value)]) })),
      columns: ["Requests", "Number", "Longest"],
      rows: curves.map(({ name, points }) => [name, count(points.length), duration(Math.max(0, ...points.map(([, value]) => value)))]),
    };
  },
};

/** A figure: curves with a legend, which tells the values under the pointer, and the same as a table. */
function figure(given) {
  const { title, about, curves } = given;
  const { kind, to, up, across, series, moment, read, columns, rows } = KINDS[given.kind](given);
  const chart = new Chart({ height: HEIGHT, format: up.format });
  const values = curves.map(() => make("b"));
  const legend = curves.map(({ name, look }, i) =>
    make("li", {}, make("span", { class: `swatch ${look}`, "aria-hidden": "true" }), make("span", { class: "legend-name" }, name), values[i]));
  const flag = make("p", { class: "moment", "aria-hidden": "true", hidden: true });
  const stage = make("div", { class: "stage" }, chart.element, flag);
  new ResizeObserver(() => chart.draw({ from: 0, to, across, up, series, kind })).observe(stage);

  const point = (n) => {
    chart.point(n);
    flag.hidden = n === null;
    curves.forEach((curve, i) => setText(values[i], n === null ? "" : read(curve, n)));
    if (n === null) return;
    setText(flag, moment(n));
    flag.style.setProperty("left", `${Math.min(chart.width - 30, Math.max(30, chart.x(n)))}px`);
  };
  if (read) {
    stage.addEventListener("pointermove", (event) => point(chart.sampleAt(event.clientX - stage.getBoundingClientRect().left)));
    stage.addEventListener("pointerleave", () => point(null));
  }
  return make("figure", { class: "panel figure" },
    make("figcaption", { class: "figure-head" }, make("h3", {}, title), make("p", { class: "hint" }, about)),
    make("ul", { class: "legend" }, ...legend),
    stage,
    make("details", {}, make("summary", {}, "The same as a table"), grid({ title, columns, rows })));
}

/** A table that scrolls by itself where it is too wide; each row may end in a bar of shares. */
function grid({ title, columns, rows, shares }) {
  const head = columns.map((name) => make("th", { scope: "col" }, name));
  if (shares) head.push(make("th", { scope: "col", class: "share-head" }, "Completed of offered"));
  const most = Math.max(...(shares ?? []).flat());
  const body = rows.map(([name, ...cells], i) =>
    make("tr", {}, make("th", { scope: "row" }, name), ...cells.map((text) => make("td", {}, text)), ...(shares ? [bar(shares[i], most)] : [])));
  const table = make("table", {}, make("thead", {}, ...(columns.length ? [make("tr", {}, ...head)] : [])), make("tbody", {}, ...body));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": title }, table);
}

/** What was offered behind what was served, and the fair share as a mark. */
function bar(shares, most) {
  const parts = ["asked", "got", "fair"].map((name, i) => {
    const part = make("i", { class: name });
    part.style.setProperty("--share", most ? shares[i] / most : 0);
    return part;
  });
  return make("td", { class: "share-cell" }, make("div", { class: "share", "aria-hidden": "true" }, ...parts));
}

function panel(table) {
  return make("div", { class: table.ends_in_prose ? "panel table prose" : "panel table" }, make("h3", {}, table.title), grid(table));
}

function tile([name, value, more]) {
  return make("div", { class: "tile" }, make("dt", {}, name), make("dd", { class: "figure-large" }, value), make("dd", { class: "figure-note" }, more));
}

function trouble(level, text) {
  return make("li", { "data-level": level }, make("span", { class: "level" }, level), make("span", { class: "what" }, text));
}

function start({ lines, problems, warnings, tiles, sections, notes }) {
  const troubles = [...problems.map((text) => trouble("error", text)), ...warnings.map((text) => trouble("warning", text))];
  document.getElementById("main").append(
    make("div", { class: "lines" }, ...lines.map((line) => make("p", {}, line))),
    ...(troubles.length ? [make("div", { class: "troubles" }, make("ul", {}, ...troubles))] : []),
    make("dl", { class: "report-tiles" }, ...tiles.map(tile)),
    ...sections.map(({ title, figures, tables }) =>
      make("section", {}, make("h2", {}, title), make("div", { class: figures.length ? "beside" : "below" }, ...figures.map(figure), ...tables.map(panel)))));
  document.getElementById("notes").append(...notes.map((text) => make("p", {}, text)));
}

start(JSON.parse(document.getElementById("data").textContent));
