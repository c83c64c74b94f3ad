// The models, each with its line: who waits, what runs, and how long a newcomer would wait.
import { keepChildren, make, setAttribute, setText } from "./dom.js";
import { duration, number, word } from "./words.js";

const SHOWN_MAX = 100;
const SCROLL = 8; // more rows than this do not fit beside the nodes
const section = document.getElementById("models");
const more = document.getElementById("models-more");

/** Show the models of a snapshot. */
export function showModels(models) {
  const frame = document.getElementById("models-scroll");
  frame.hidden = models.length === 0;
  setAttribute(frame, "tabindex", models.length > SCROLL ? 0 : null); // a long table scrolls, also by key
  setAttribute(frame, "role", models.length > SCROLL ? "group" : null);
  setAttribute(frame, "aria-label", models.length > SCROLL ? word("models_title") : null);
  section.querySelector(".empty").hidden = models.length > 0;
  keepChildren(section.querySelector("tbody"), byName(models).slice(0, SHOWN_MAX), {
    key: ({ model, families }) => `${model} ${families}`,
    create: () =>
      make("tr", {}, make("th", { scope: "row" }, make("span", { class: "model-name" })),
        ...[1, 2, 3, 4].map(() => make("td"))),
    update: (row, model) => {
      const [name, ...cells] = row.children;
      setText(name.children[0], model.model);
      setAttribute(name.children[0], "title", `${model.model} (${model.families.join(", ")})`);
      [number(model.waiting), number(model.processing), number(model.slots), estimate(model)].forEach((text, i) =>
        setText(cells[i], text));
      setAttribute(cells[3], "title", word("models_estimate_means"));
      setAttribute(row, "data-busy", model.waiting ? "yes" : null);
    },
  });
  more.hidden = models.length <= SHOWN_MAX;
  if (!more.hidden) setText(more, word("models_more", { count: models.length - SHOWN_MAX }));
}

/** The gateway sends the busiest first; rows that change places cannot be read. */
function byName(models) {
  return [...models].sort((a, b) => a.model.localeCompare(b.model, "en", { numeric: true }));
}

function estimate({ wait_p50_seconds: half, wait_p90_seconds: most }) {
  if (half === null) return word("none");
  if (most === null || duration(half) === duration(most)) return duration(half);
  return `${duration(half)} – ${duration(most)}`;
}
