// Draws one chart in SVG: stacked areas, lines, stacked bars or dots over a range of samples.
// It knows nothing of the queue and writes no words of its own: a chart is given its series and its axes.
// The page draws its time line and its usage with it, and the report of `forebay bench` all that it shows.
import { niceTicks } from "./scale.js";

const SVG = "http://www.w3.org/2000/svg";
export const MARGIN = { left: 46, right: 10, top: 8, bottom: 20 };

/** Make an SVG element. */
function svg(tag, attributes = {}) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Make the patterns that tell areas apart without colour; one set serves the whole page. */
function patterns() {
  const make = (id, ink) => {
    const pattern = svg("pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
    pattern.append(ink);
    return pattern;
  };
  const defined = svg("defs");
  defined.append(make("stripes", svg("rect", { width: 1.4, height: 6 })), make("dots", svg("circle", { cx: 3, cy: 3, r: 0.9 })));
  return defined;
}

/** One chart; `height` in pixels, `format` writes the values of its axis. */
export class Chart {
  constructor({ height, format, whole, patterned = false }) {
    Object.assign(this, { height, format, whole, width: 0 });
    this.element = svg("svg", { class: "chart", height, "aria-hidden": "true", focusable: "false" });
    if (patterned) this.element.append(patterns());
    this.layers = {};
    for (const name of ["grid", "marks", "labels", "selection", "cursor"]) {
      this.layers[name] = svg("g", { class: name });
      this.element.append(this.layers[name]);
    }
  }

  /**
   * Draw the series over the samples `from` to `to`. `across` is called with how many labels fit, and returns the
   * ticks of the time axis: at which sample, and what to write there. `up` is the axis of the values: its top and
   * its ticks, 0 at the bottom; without one it is made to hold the highest value.
   */
  draw({ from, to, across, up, series, kind, step = 1 }) {
    this.width = this.element.clientWidth || 600;
    this.element.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    Object.assign(this, { from, to });
    const { top, ticks } = up ?? niceTicks(highest(series, from, to, kind, step), 3, this.whole);
    this.top = top;
    this.drawGrid(ticks, across(Math.max(2, this.width / 110)));
    const marks = { areas: stackedAreas, lines: plainLines, bars: stackedBars, dots: plainDots }[kind](this, series, step);
    this.layers.marks.replaceChildren(...marks);
  }

  /** Where a sample, and a value, lies. */
  x(number) {
    const inner = this.width - MARGIN.left - MARGIN.right;
    return MARGIN.left + (inner * (number - this.from)) / Math.max(1, this.to - this.from);
  }

  y(value) {
    const inner = this.height - MARGIN.top - MARGIN.bottom;
    return MARGIN.top + inner * (1 - value / this.top);
  }

  /** Return the sample at a place, in pixels from the left edge of the chart. */
  sampleAt(pixels) {
    const inner = this.width - MARGIN.left - MARGIN.right;
    const share = Math.min(1, Math.max(0, (pixels - MARGIN.left) / inner));
    return Math.round(this.from + share * (this.to - this.from));
  }

  /** Draw the cursor at a sample, or none. */
  point(number) {
    const line = number === null ? [] : [svg("path", { d: `M${this.x(number)} ${MARGIN.top}V${this.y(0)}` })];
    this.layers.cursor.replaceChildren(...line);
  }

  /** Draw what is being selected, or nothing. */
  select(range) {
    const boxes = [];
    if (range) {
      const [a, b] = [this.x(range[0]), this.x(range[1])];
      const height = this.y(0) - MARGIN.top;
      boxes.push(svg("rect", { x: Math.min(a, b), width: Math.abs(b - a), y: MARGIN.top, height }));
    }
    this.layers.selection.replaceChildren(...boxes);
  }

  drawGrid(values, times) {
    const lines = values.map((value) => `M${MARGIN.left} ${round(this.y(value))}H${this.width - MARGIN.right}`);
    const grid = [svg("path", { d: lines.join("") })];
    const labels = values.map((value) => text(MARGIN.left - 8, this.y(value) + 4, this.format(value), "end"));
    for (const { at, label } of times) {
      const x = this.x(at);
      grid.push(svg("path", { class: "tick", d: `M${round(x)} ${this.y(0)}v4` }));
      labels.push(text(x, this.height - 4, label, "middle"));
    }
    this.layers.grid.replaceChildren(...grid);
    this.layers.labels.replaceChildren(...labels);
  }
}

/** Return the highest value that will be drawn. */
function highest(series, from, to, kind, step) {
  let most = 0;
  if (kind === "lines") {
    for (const { at } of series) for (let n = from; n <= to; n += 1) most = Math.max(most, at(n) ?? 0);
  } else {
    const stride = kind === "bars" ? step : 1; // an area is drawn through every sample
    for (let n = aligned(from, stride); n <= to; n += stride) {
      most = Math.max(most, series.reduce((sum, { at }) => sum + (at(n) ?? 0), 0));
    }
  }
  return most;
}

/** The first series at the bottom, each next one on top of it. A gap in the samples is a gap. */
function stackedAreas(chart, series) {
  const count = chart.to - chart.from + 1;
  const below = new Float64Array(count);
  return series.flatMap(({ at, look, pattern }) => {
    const top = [];
    const bottom = [];
    for (let i = 0; i < count; i += 1) {
      const x = round(chart.x(chart.from + i));
      bottom.push(`${x} ${round(chart.y(below[i]))}`);
      below[i] += at(chart.from + i) ?? 0;
      top.push(`${x} ${round(chart.y(below[i]))}`);
    }
    const d = `M${top.join("L")}L${bottom.reverse().join("L")}Z`;
    const area = svg("path", { class: `area ${look}`, d });
    return pattern ? [area, svg("path", { fill: `url(#${pattern})`, d })] : [area];
  });
}

function plainLines(chart, series) {
  return series.map(({ at, look }) => {
    let path = "";
    let drawing = false;
    for (let n = chart.from; n <= chart.to; n += 1) {
      const value = at(n);
      if (value !== null) path += `${drawing ? "L" : "M"}${round(chart.x(n))} ${round(chart.y(value))}`;
      drawing = value !== null;
    }
    return svg("path", { class: `line ${look}`, d: path || "M0 0" });
  });
}

/** A dot for each of the points of a series: a stroke without length. */
function plainDots(chart, series) {
  return series.map(({ points, look }) => {
    const dots = points.map(([at, value]) => `M${round(chart.x(at))} ${round(chart.y(value))}h0`);
    return svg("path", { class: `dots ${look}`, d: dots.join("") || "M0 0" });
  });
}

function stackedBars(chart, series, step) {
  const wide = Math.max(1, chart.x(step) - chart.x(0) - 1.5);
  const paths = series.map(() => "");
  for (let n = aligned(chart.from, step); n <= chart.to; n += step) {
    let below = 0;
    series.forEach(({ at }, i) => {
      const value = at(n) ?? 0;
      if (!value) return;
      const left = Math.max(MARGIN.left, chart.x(n));
      const right = Math.min(chart.x(n) + wide, chart.width - MARGIN.right);
      const [low, high] = [round(chart.y(below)), round(chart.y(below + value))];
      paths[i] += `M${round(left)} ${low}V${high}H${round(Math.max(right, left + 1))}V${low}Z`;
      below += value;
    });
  }
  return series.map(({ look }, i) => svg("path", { class: `bar ${look}`, d: paths[i] || "M0 0" }));
}

/** Return the start of the bar that a sample is in: bars stay where they are while time goes on. */
export function aligned(number, step) {
  return Math.floor(number / step) * step;
}

function text(x, y, content, anchor) {
  const label = svg("text", { x: round(x), y: round(y), "text-anchor": anchor });
  label.textContent = content;
  return label;
}

function round(value) {
  return Math.round(value * 10) / 10;
}
