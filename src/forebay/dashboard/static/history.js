// The samples that the time line draws: one a second of the last 15 minutes, or one a minute of the last day. Bounded.

export const SAMPLES_MAX = 900;
const COLUMNS = ["processing", "served", "rejected", "wait_p50_seconds", "wait_p95_seconds"];

/** Columns of equal length, oldest first; `last` is the number of the newest sample. */
export class History {
  constructor(most = SAMPLES_MAX) {
    this.most = most;
    this.stepMs = 1000; // between two samples
    this.priorities = [];
    this.clear();
  }

  get length() {
    return this.columns.processing.length;
  }

  /** The number of the oldest sample. */
  get first() {
    return this.last - this.length + 1;
  }

  clear() {
    this.last = 0;
    this.lastAt = Date.now(); // when the newest sample was taken, by the gateway's clock
    this.depth = Object.fromEntries(this.priorities.map((name) => [name, []]));
    this.waits = Object.fromEntries(this.priorities.map((name) => [name, []])); // 95% wait less
    this.columns = Object.fromEntries(COLUMNS.map((name) => [name, []]));
  }

  /** Begin anew with what the gateway remembers: after every connection, and so after a restart. */
  replace(priorities, told) {
    this.priorities = priorities;
    this.clear();
    for (const name of priorities) this.depth[name] = (told.depth[name] || []).slice(-this.most);
    for (const name of COLUMNS) this.columns[name] = told[name].slice(-this.most);
    for (const name of priorities) this.waits[name] = (told.wait_p95_seconds_by_priority[name] || []).slice(-this.most);
    this.stepMs = (told.step_seconds ?? 1) * 1000;
    this.last = told.sample_number;
    this.lastAt = Date.parse(told.at) - (told.age_seconds ?? 0) * 1000;
  }

  /** Add the sample of a snapshot; return false if it is there already, as two snapshots share one. */
  add(number, sample, at) {
    if (number <= this.last) return false;
    const missed = Math.min(number - this.last - 1, this.most);
    for (let i = 0; i < missed; i += 1) this.push(null);
    this.push(sample);
    this.last = number;
    this.lastAt = Date.parse(at);
    return true;
  }

  push(sample) {
    for (const [name, column] of Object.entries(this.depth)) this.put(column, sample && (sample.depth[name] ?? 0));
    for (const [name, column] of Object.entries(this.waits)) this.put(column, sample?.wait_p95_seconds_by_priority[name]);
    for (const [name, column] of Object.entries(this.columns)) this.put(column, sample && sample[name]);
  }

  /** Return when a sample was taken, in milliseconds since 1970. */
  timeOf(number) {
    return this.lastAt - (this.last - number) * this.stepMs;
  }

  /** Return the value of a column at a sample; null where there is none. */
  at(column, number) {
    return column[number - this.first] ?? null;
  }

  /** Return the sum of a column over these samples. */
  sum(column, from, to) {
    let total = 0;
    for (let number = from; number <= to; number += 1) total += this.at(column, number) ?? 0;
    return total;
  }

  put(column, value) {
    column.push(value ?? null);
    if (column.length > this.most) column.shift();
  }
}
