// A list that is read from a route while somebody looks at it: folded at first, read every two seconds while it is
// open and in sight, more slowly after errors, and hidden from those who may not see it.
import { makeAction, updateAction } from "./action.js";
import { withOptions } from "./commands.js";
import { make, setAttribute, setText } from "./dom.js";
import { keyHeaders } from "./key.js";
import { DataTable } from "./table.js";
import { currentLanguage, fillWords, number, onLanguage, word } from "./words.js";

const WAITS_MS = [2000, 4000, 8000, 16000, 30000]; // between two reads; the later ones after errors in a row
const LIMIT_MS = 8000;
const PAGE = 50;
const ROWS_MAX = 1000;
const OPEN = "forebay.open";
const HIDES = [401, 403, 404]; // answers to those who may not see the list
const listings = [];

/**
 * `name` is the id of the section and `title` its word; `choices` are [value, word] pairs that `read` is told of.
 * `admins` says that only they may see it. `read({choice, limit, get})` returns {rows, more}; `get(path)` fetches JSON. `act(row)` is what may be done with a row,
 * `head` {element, draw()} stands before the table, `everyMs` is how long to wait at least between two reads.
 */
export class Listing {
  constructor({ name, title, empty, columns, key, look, choices = [], admins = false, act = null, head = null, everyMs = 0, read }) {
    Object.assign(this, { name, title, empty, admins, act, head, everyMs, read, rows: null, more: false, failures: 0, problem: "", limit: PAGE });
    const acts = { name: "node_actions", fill: (cell, row) => this.showAction(cell, row) };
    this.table = new DataTable({ title, key, look, columns: act ? [...columns, acts] : columns });
    this.build(choices);
    this.details.open = remembered().includes(name);
    this.details.addEventListener("toggle", () => this.toggled());
    document.addEventListener("visibilitychange", () => this.poll());
    onLanguage(() => this.draw());
    listings.push(this);
  }

  /** Whether anybody looks. */
  get wanted() {
    return this.details.open && !this.section.hidden && !document.hidden;
  }

  /** Show the list to those who may see it, and begin anew with what they see. */
  allow(allowed) {
    this.section.hidden = !allowed;
    this.rows = null;
    this.failures = 0;
    this.poll();
  }

  build(choices) {
    const id = `${this.name}-title`;
    this.section = make("section", { class: "panel", id: this.name, "aria-labelledby": id, hidden: true });
    this.count = make("span", { class: "count" });
    this.field = make("input", { type: "search", autocomplete: "off" });
    this.select = make("select", {}, ...choices.map(([value, text]) => make("option", { value, "data-word": text })));
    this.tools = make("div", { class: "tools" },
      make("label", { class: "filter", hidden: !choices.length }, make("span", { "data-word": "list_show" }), this.select),
      make("label", { class: "filter" }, make("span", { "data-word": "nodes_filter" }), this.field));
    this.frame = make("div", { class: "scroll list-frame", tabindex: 0, role: "group", hidden: true, "data-label": this.title }, this.table.element);
    this.note = make("p", { class: "empty", role: "status" });
    this.button = make("button", { type: "button", class: "quiet", "data-word": "list_more", hidden: true });
    this.aloud = make("p", { class: "unseen", role: "status" });
    this.details = make("details", {},
      make("summary", {}, make("h2", { id, "data-word": this.title }), this.count), ...(this.head ? [this.head.element] : []), this.tools, this.frame, this.note, this.button);
    this.section.append(this.details, this.aloud);
    document.getElementById("lists").append(this.section);
    fillWords(this.section);
    this.field.addEventListener("input", () => this.draw());
    this.select.addEventListener("change", () => this.again());
    this.button.addEventListener("click", () => {
      this.limit = Math.min(ROWS_MAX, this.limit + PAGE);
      this.poll();
    });
  }

  toggled() {
    remember(listings.filter(({ details }) => details.open).map(({ name }) => name));
    this.poll();
  }

  /** Read anew what is shown now: another choice has been made. */
  again() {
    this.rows = null;
    this.limit = PAGE;
    this.draw();
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    if (!this.wanted || this.reading) return;
    this.reading = true;
    const choice = this.select.value;
    try {
      const { rows, more } = await this.read({ choice, limit: this.limit, get });
      this.failures = 0;
      this.problem = "";
      if (choice === this.select.value) Object.assign(this, { rows, more });
    } catch (error) {
      this.failures += 1;
      this.problem = error.message;
      if (HIDES.includes(error.status)) this.section.hidden = true;
      if (!(error instanceof Refused || error instanceof TypeError || error.name === "TimeoutError")) reportError(error);
    }
    this.reading = false;
    this.draw();
    const changed = choice !== this.select.value;
    if (this.wanted) this.timer = setTimeout(() => this.poll(), changed ? 0 : Math.max(this.everyMs, WAITS_MS[Math.min(this.failures, WAITS_MS.length - 1)]));
  }

  draw() {
    const sought = this.field.value.trim().toLowerCase();
    const rows = (this.rows ?? []).filter((row) => !sought || JSON.stringify(Object.values(row)).toLowerCase().includes(sought));
    setText(this.count, this.rows ? `${number(this.rows.length)}${this.more ? "+" : ""}` : "");
    this.frame.hidden = rows.length === 0;
    this.table.show(rows);
    if (this.head && this.details.open) this.head.draw();
    setText(this.note, this.said(rows));
    this.note.hidden = !this.note.textContent;
    setAttribute(this.note, "data-problem", this.problem ? "yes" : null);
    this.button.hidden = !this.more || this.limit >= ROWS_MAX;
  }

  /** What is said below the table: that it is being read, cannot be, or is empty. */
  said(rows) {
    if (this.problem) return word("list_problem", { message: this.problem });
    if (this.rows === null) return word("list_reading");
    if (rows.length) return "";
    return withOptions(word(this.rows.length ? "list_no_match" : this.empty));
  }

  showAction(cell, row) {
    if (!cell.firstChild) cell.append(makeAction(this.aloud));
    const what = this.act(row);
    updateAction(cell.firstChild, what && { ...what, after: () => this.poll() });
  }
}

/** Fetch JSON with our key; throws Refused with the status where the answer is no. */
async function get(path) {
  const headers = { ...keyHeaders(), "Accept-Language": currentLanguage() };
  const answer = await fetch(path, { headers, cache: "no-store", signal: AbortSignal.timeout(LIMIT_MS) });
  const body = await answer.json().catch(() => null);
  if (!answer.ok || !body) throw new Refused(body?.error?.message || `HTTP ${answer.status}`, answer.status);
  return body;
}

/** The gateway said no. */
class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(OPEN)) || [];
  } catch {
    return []; // storage may be forbidden
  }
}

function remember(names) {
  try {
    sessionStorage.setItem(OPEN, JSON.stringify(names));
  } catch {
    // Storage may be forbidden: then they are folded again next time.
  }
}
