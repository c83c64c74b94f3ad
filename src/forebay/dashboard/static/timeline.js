// The time line: three charts on one axis, with one cursor, zoomed by button, by dragging and by key.
import { aligned, Chart } from "./chart.js";
import { barSeconds, clockAxis } from "./scale.js";
import { SAMPLES_MAX } from "./history.js";
import { Day, DAY_S } from "./day.js";
import { make, setAttribute, setText } from "./dom.js";
import { axisDuration, clockTime, duration, longDuration, number, onLanguage, word, wordOr } from "./words.js";
import { fillTable } from "./timeline_table.js";

const LOOKS = 6; // style.css has this many looks for priorities
const PATTERNS = ["stripes", null, "dots"]; // over the colours, in turn
const DRAG_MIN_S = 4; // less than this is a click

/** Draws a History; `draw` is cheap enough for two calls a second. */
export class Timeline {
  constructor(history) {
    this.live = history;
    this.day = new Day(() => this.draw());
    this.body = document.getElementById("charts");
    this.pointing = document.getElementById("pointing"); // lies over the charts: a slider along the time
    this.table = document.getElementById("timeline-table");
    this.reset = document.getElementById("zoom-reset");
    this.problem = document.getElementById("timeline-problem");
    this.chosen = null; // seconds, once somebody chose
    this.range = null; // [from, to] in sample numbers once somebody zoomed in by hand
    this.cursor = null; // the sample pointed at
    this.figures = [
      this.figure("depth", { height: 120, whole: true, patterned: true, format: (value) => number(value) }),
      this.figure("waits", { height: 120, whole: false, format: axisDuration }),
      this.figure("rate", { height: 120, whole: true, format: (value) => number(value) }),
    ];
    this.listen();
    onLanguage(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  /** What is drawn: the last day where somebody chose it and it has been read, else the last minutes. */
  get history() {
    return this.chosen === DAY_S && this.day.history ? this.day.history : this.live;
  }

  /** How much is shown: what somebody chose, else as much as there is to see. */
  get seconds() {
    const { length } = this.live;
    return this.chosen ?? (length <= 60 ? 60 : length <= 300 ? 300 : SAMPLES_MAX);
  }

  /** Draw what the history holds now. */
  draw() {
    if (document.hidden) return;
    if (this.range && this.range[0] < this.history.first) this.range = null; // forgotten meanwhile
    const samples = Math.min(this.history.most, Math.round((this.seconds * 1000) / this.history.stepMs));
    const [from, to] = this.range || [this.history.last - samples + 1, this.history.last];
    const step = barSeconds(to - from);
    for (const figure of this.figures) this.drawFigure(figure, from, to, step);
    this.readOut(from, to);
    this.reset.hidden = this.range === null;
    for (const button of document.querySelectorAll("#zoom [data-seconds]")) {
      setAttribute(button, "aria-pressed", !this.range && Number(button.dataset.seconds) === this.seconds);
    }
    if (this.table.open) fillTable(this.table, this.live);
    setText(this.problem, this.chosen === DAY_S ? this.day.problem : "");
  }

  figure(name, options) {
    const title = make("h3");
    const legend = make("ul", { class: "legend" });
    const empty = make("p", { class: "empty", hidden: true });
    const chart = new Chart(options);
    const stage = make("div", { class: "stage" });
    stage.append(chart.element, empty);
    this.body.append(make("figure", { class: "figure" }, make("div", { class: "figure-head" }, title, legend), stage));
    return { name, title, legend, empty, chart };
  }

  drawFigure(figure, from, to, step) {
    const series = this.series(figure.name, step);
    const byClass = figure.name === "waits" && this.waitClasses().length > 1;
    const title = word(byClass ? "chart_waits_class" : `chart_${figure.name}`, { step: longDuration((step * this.history.stepMs) / 1000) });
    const kind = { depth: "areas", waits: "lines", rate: "bars" }[figure.name];
    setText(figure.title, title);
    const across = clockAxis({ from, to, sampleMs: this.history.stepMs, timeOf: (n) => this.history.timeOf(n) }, clockTime);
    figure.chart.draw({ from, to, step, kind, series, across });
    figure.empty.hidden = series.some(({ column }) => column.some((value) => value));
    if (figure.name === "waits") figure.empty.hidden = series.some(({ column }) => column.some((value) => value !== null));
    setText(figure.empty, word(`chart_${figure.name}_empty`));
    figure.series = series;
    while (figure.legend.children.length > series.length) figure.legend.lastChild.remove();
    series.forEach(({ label, look }, i) => {
      const entry = figure.legend.children[i] || figure.legend.appendChild(legendEntry());
      setAttribute(entry.children[0], "class", `swatch ${look}`);
      setText(entry.children[1], label);
    });
  }

  /** What one chart shows: each with its column, its look and its value at a sample. */
  series(name, step) {
    const history = this.history;
    const one = (column) => (n) => history.at(column, n);
    if (name === "depth") {
      return history.priorities.map((priority, i) => ({
        column: history.depth[priority] || [],
        at: one(history.depth[priority] || []),
        label: wordOr("priority_", priority),
        look: `look-${i % LOOKS}`,
        pattern: PATTERNS[i % PATTERNS.length],
        show: (value) => number(value),
      }));
    }
    const classes = this.waitClasses();
    if (name === "waits" && classes.length > 1) {
      return classes.map((priority) => ({
        column: history.waits[priority],
        at: one(history.waits[priority]),
        label: wordOr("priority_", priority),
        look: `class look-${history.priorities.indexOf(priority) % LOOKS}`,
        show: duration,
      }));
    }
    if (name === "waits") {
      return ["p50", "p95"].map((which) => ({
        column: history.columns[`wait_${which}_seconds`],
        at: one(history.columns[`wait_${which}_seconds`]),
        label: word(which),
        look: which,
        show: duration,
      }));
    }
    return ["served", "rejected"].map((which) => ({
      column: history.columns[which],
      at: (n) => history.sum(history.columns[which], aligned(n, step), aligned(n, step) + step - 1),
      label: word(which),
      look: which,
      show: (value) => number(value),
    }));
  }

  /** The priorities of which a wait was measured. */
  waitClasses() {
    return this.history.priorities.filter((priority) => this.history.waits[priority].some((value) => value !== null));
  }

  /** Write the values under the cursor into the legends; without a cursor, the newest. */
  readOut(from, to) {
    if (this.cursor !== null && (this.cursor < from || this.cursor > to)) this.cursor = null;
    const at = this.cursor ?? to;
    const values = [];
    for (const { legend, series, chart } of this.figures) {
      chart.point(this.cursor);
      series.forEach(({ at: valueAt, label, show }, i) => {
        const value = valueAt(at);
        const shown = value === null ? word("none") : show(value);
        setText(legend.children[i].children[2], shown);
        values.push(`${label} ${shown}`);
      });
    }
    setAttribute(this.pointing, "aria-valuemin", from);
    setAttribute(this.pointing, "aria-valuemax", to);
    if (this.cursor !== null || document.activeElement !== this.pointing) { // else it would be read out twice a second
      setAttribute(this.pointing, "aria-valuenow", at);
      const time = clockTime(this.history.timeOf(at));
      setAttribute(this.pointing, "aria-valuetext", word("cursor_value", { time, values: values.join(", ") }));
    }
    this.moment(at);
  }

  /** Write the time beside the cursor. */
  moment(at) {
    this.flag ??= this.body.appendChild(make("p", { class: "moment", "aria-hidden": "true" }));
    this.flag.hidden = this.cursor === null;
    if (this.cursor === null) return;
    setText(this.flag, clockTime(this.history.timeOf(at)));
    const { chart } = this.pointed ?? this.figures[0];
    const box = chart.element.getBoundingClientRect();
    const frame = this.body.getBoundingClientRect();
    this.flag.style.setProperty("left", `${box.left - frame.left + Math.min(chart.width - 44, Math.max(30, chart.x(at)))}px`);
    this.flag.style.setProperty("top", `${box.top - frame.top}px`);
  }

  listen() {
    for (const button of document.querySelectorAll("#zoom [data-seconds]")) {
      button.addEventListener("click", () => this.zoom(Number(button.dataset.seconds)));
    }
    this.reset.addEventListener("click", () => {
      this.unzoom();
      document.querySelector(`#zoom [data-seconds="${this.seconds}"]`).focus();
    });
    this.table.addEventListener("toggle", () => this.draw());
    this.pointing.addEventListener("keydown", (event) => this.key(event));
    this.pointing.addEventListener("blur", () => this.move(null));
    this.pointing.addEventListener("dblclick", () => this.unzoom());
    this.pointing.addEventListener("pointerdown", (event) => this.press(event));
    this.pointing.addEventListener("pointermove", (event) => this.drag(event));
    this.pointing.addEventListener("pointerup", () => this.release());
    this.pointing.addEventListener("pointercancel", () => this.drop());
    this.pointing.addEventListener("pointerleave", (event) => {
      if (this.pressed === undefined && event.pointerType !== "touch") this.move(null); // a finger is lifted to see
    });
  }

  zoom(seconds) {
    this.chosen = seconds;
    this.day.follow(seconds === DAY_S);
    this.range = null;
    this.cursor = null;
    this.drop();
    this.draw();
  }

  unzoom() {
    this.range = null;
    this.drop();
    this.draw();
  }

  key(event) {
    const { from, to } = this.figures[0].chart;
    const stride = Math.max(1, Math.round((to - from) / 60));
    const moves = {
      ArrowLeft: (at) => at - stride, ArrowRight: (at) => at + stride,
      ArrowDown: (at) => at - stride, ArrowUp: (at) => at + stride,
      PageDown: (at) => at - 10 * stride, PageUp: (at) => at + 10 * stride,
      Home: () => from, End: () => to,
    };
    if (event.key === "Escape") this.range ? this.unzoom() : this.move(null);
    else if (event.key in moves) {
      event.preventDefault();
      this.move(Math.min(to, Math.max(from, moves[event.key](this.cursor ?? to))));
    }
  }

  press(event) {
    if (event.button !== 0) return;
    this.move(this.sampleAt(event));
    if (event.pointerType === "touch") return; // a finger points; the buttons zoom
    this.pressed = this.cursor;
    this.pointing.setPointerCapture(event.pointerId);
  }

  drag(event) {
    const at = this.sampleAt(event);
    if (this.pressed !== undefined) {
      this.released = at;
      for (const { chart } of this.figures) chart.select([this.pressed, at]);
    }
    this.move(at);
  }

  release() {
    if (this.pressed === undefined) return;
    const range = [this.pressed, this.released ?? this.pressed].sort((a, b) => a - b);
    this.drop();
    if (range[1] - range[0] < DRAG_MIN_S) return;
    const from = Math.max(range[0], this.history.first); // there is nothing before it
    this.range = [from, Math.max(range[1], from + DRAG_MIN_S)];
    this.draw();
  }

  drop() {
    this.pressed = this.released = undefined;
    for (const { chart } of this.figures) chart.select(null);
  }

  move(at) {
    this.cursor = at;
    const { from, to } = this.figures[0].chart;
    if (this.figures[0].series) this.readOut(from, to);
  }

  sampleAt(event) {
    const boxOf = ({ chart }) => chart.element.getBoundingClientRect();
    if (this.pressed === undefined) { // they stand beside each other or one below the other, as there is room
      const under = (box) => event.clientX <= box.right && event.clientY <= box.bottom;
      this.pointed = this.figures.find((figure) => under(boxOf(figure))) ?? this.figures.at(-1);
    }
    return this.pointed.chart.sampleAt(event.clientX - boxOf(this.pointed).left);
  }
}

function legendEntry() {
  return make("li", {}, make("span", { "aria-hidden": "true" }), make("span", { class: "legend-name" }), make("b"));
}
