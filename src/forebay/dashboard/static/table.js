// One table for everything that is listed: rows keep their elements, columns sort, a phone shows each row as a block.
import { keepChildren, make, setAttribute, setText } from "./dom.js";
import { word } from "./words.js";

/**
 * `columns` are {name, text(row)} or {name, fill(cell, row)}; `value(row)` makes one sortable, `end` aligns it right,
 * `when(rows)` says whether it is shown.
 * `name` and `title` are words, `key(row)` tells rows apart, `look(row)` is what their style goes by.
 */
export class DataTable {
  constructor({ title, columns, key, look = () => null }) {
    Object.assign(this, { title, columns, key, look, rows: [], sorted: null });
    this.caption = make("caption", { class: "unseen" });
    this.heads = columns.map((column, i) => this.head(column, i));
    this.body = make("tbody");
    this.element = make("table", { class: "data" },
      this.caption, make("thead", {}, make("tr", {}, ...this.heads)), this.body);
  }

  /** Show these rows, in their order or in that of the column somebody chose. */
  show(rows) {
    this.rows = rows;
    setText(this.caption, word(this.title));
    const shown = this.columns.map(({ when }) => !when || when(rows));
    this.columns.forEach(({ name, value }, i) => {
      this.heads[i].hidden = !shown[i];
      setText(value ? this.heads[i].firstChild : this.heads[i], word(name));
      setAttribute(this.heads[i], "aria-sort", this.sorted?.column === i ? (this.sorted.down ? "descending" : "ascending") : null);
    });
    keepChildren(this.body, this.inOrder(), {
      key: this.key,
      create: () => make("tr", {}, ...this.columns.map(({ end }, i) => make(i ? "td" : "th", { scope: i ? null : "row", class: end ? "end" : null }))),
      update: (element, row) => {
        setAttribute(element, "data-state", this.look(row));
        this.columns.forEach(({ name, text, fill }, i) => {
          const cell = element.children[i];
          cell.hidden = !shown[i];
          setAttribute(cell, "data-name", word(name));
          if (fill) fill(cell, row);
          else setText(cell, text(row));
        });
      },
    });
  }

  head({ value, end }, i) {
    const head = make("th", { scope: "col", class: end ? "end" : null });
    if (!value) return head;
    head.append(make("button", { type: "button", class: "sort" }));
    head.firstChild.addEventListener("click", () => {
      const before = this.sorted?.column === i ? this.sorted : null;
      this.sorted = !before ? { column: i, down: Boolean(end) } : before.down === Boolean(end) ? { column: i, down: !end } : null;
      this.show(this.rows);
    });
    return head;
  }

  inOrder() {
    if (!this.sorted) return this.rows;
    const { value } = this.columns[this.sorted.column];
    const sign = this.sorted.down ? -1 : 1;
    return [...this.rows].sort((a, b) => sign * compare(value(a), value(b)));
  }
}

/** What is not known comes before everything that is. */
function compare(a, b) {
  const known = Number((a ?? null) !== null) - Number((b ?? null) !== null);
  if (known || (a ?? null) === null) return known;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}
