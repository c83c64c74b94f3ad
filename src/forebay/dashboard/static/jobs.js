// Jobs by type and status, as one bar each, and the lines of open batches.
import { keepChildren, make, setText } from "./dom.js";
import { withOptions } from "./commands.js";
import { bytes, number, word } from "./words.js";

const STATUSES = ["completed", "failed", "cancelled", "running", "queued"];
const section = document.getElementById("jobs");

/** Show the jobs of a snapshot. */
export function showJobs({ types, batches, vram_reserved_bytes }) {
  const rows = types.map((row) => ({ key: `type ${row.type}`, title: row.type, parts: STATUSES.map((name) => [name, row[name]]) }));
  if (batches.open) rows.push(batchRow(batches));
  const empty = section.querySelector(".empty");
  empty.hidden = rows.length > 0;
  setText(empty, withOptions(word("jobs_empty")));
  keepChildren(section.querySelector("ul"), rows, { key: ({ key }) => key, create: makeRow, update: updateRow });
  showReserved(vram_reserved_bytes);
}

function batchRow({ open, lines, completed, failed }) {
  const left = Math.max(0, lines - completed - failed);
  return {
    key: "batches",
    title: word("jobs_batches", { open }),
    note: word("jobs_lines", { done: completed + failed, lines }),
    parts: [["completed", completed], ["failed", failed], ["queued", left]],
  };
}

function makeRow() {
  return make("li", {},
    make("p", { class: "job-head" }, make("b"), make("span")),
    make("div", { class: "stack", "aria-hidden": "true" }, ...STATUSES.map((status) => make("i", { class: `job-${status}` }))),
    make("ul", { class: "legend" }));
}

function updateRow(row, { title, note, parts }) {
  const [head, stack, legend] = row.children;
  const total = parts.reduce((sum, [, count]) => sum + count, 0);
  const counts = new Map(parts);
  setText(head.children[0], title);
  setText(head.children[1], note ?? number(total));
  STATUSES.forEach((status, i) => {
    stack.children[i].style.setProperty("flex-grow", total ? (counts.get(status) || 0) / total : 0);
  });
  keepChildren(legend, parts.filter(([, count]) => count), {
    key: ([status]) => status,
    create: ([status]) =>
      make("li", {}, make("span", { class: `swatch job-${status}`, "aria-hidden": "true" }),
        make("span", { class: "legend-name" }), make("b")),
    update: (entry, [status, count]) => {
      setText(entry.children[1], word(`job_${status}`));
      setText(entry.children[2], number(count));
    },
  });
}

function showReserved(size) {
  let line = section.querySelector(".reserved");
  if (!line) section.append((line = make("p", { class: "hint reserved" })));
  line.hidden = !size;
  setText(line, size ? word("jobs_reserved", { size: bytes(size) }) : "");
}
