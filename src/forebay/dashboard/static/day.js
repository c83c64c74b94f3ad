// The last 24 hours, one sample a minute: read when somebody chooses them, and again every minute while they are shown.
import { History } from "./history.js";
import { keyHeaders } from "./key.js";
import { currentLanguage, word } from "./words.js";

export const DAY_S = 86400;
const EVERY_MS = 60000;
const AGAIN_MS = 10000; // after an error
const LIMIT_MS = 8000;
const MOST = 1440;

/** Calls back when there is something new to draw. */
export class Day {
  constructor(onChange) {
    this.onChange = onChange;
    this.history = null; // until it has been read
    this.problem = "";
    this.followed = false;
    document.addEventListener("visibilitychange", () => this.read());
  }

  /** Read it from now on, or no longer. */
  follow(followed) {
    this.followed = followed;
    this.problem = "";
    this.read();
  }

  async read() {
    clearTimeout(this.timer);
    if (!this.followed || document.hidden || this.reading) return;
    this.reading = true;
    try {
      const headers = { ...keyHeaders(), "Accept-Language": currentLanguage() };
      const answer = await fetch("/events/history?hours=24", { headers, cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.error?.message || `HTTP ${answer.status}`);
      this.history ??= new History(MOST);
      this.history.replace(told.priorities, evenly(told));
      this.problem = "";
    } catch (error) {
      this.problem = word("list_problem", { message: error.message });
    }
    this.reading = false;
    this.onChange();
    this.timer = setTimeout(() => this.read(), this.problem ? AGAIN_MS : EVERY_MS);
  }
}

/** Return the columns with a place for every minute: where the gateway was not there, nothing is known. */
function evenly({ step_seconds, at, depth, wait_p95_seconds_by_priority: waits = {}, ...columns }) {
  const last = at.length ? at.at(-1) / step_seconds : Math.floor(Date.now() / 1000 / step_seconds);
  const places = new Map(at.map((second, i) => [second / step_seconds, i]));
  const filled = (column) => Array.from({ length: MOST }, (_, i) => column[places.get(last - MOST + 1 + i)] ?? null);
  delete columns.priorities;
  delete columns.wait_p50_seconds_by_priority;
  const all = (group) => Object.fromEntries(Object.entries(group).map(([name, column]) => [name, filled(column)]));
  const groups = { depth: all(depth), wait_p95_seconds_by_priority: all(waits) };
  return { step_seconds, sample_number: last, at: new Date(last * step_seconds * 1000).toISOString(), ...groups, ...all(columns) };
}
