// The banner that says what is wrong and what to do, and the caption of a demo.
import { keepChildren, make, setAttribute, setText } from "./dom.js";
import { withOptions } from "./commands.js";
import { said, word } from "./words.js";

const FIRST = 3; // more than this are shown when somebody asks: the nodes stay in sight

const banner = document.getElementById("troubles");
const list = banner.querySelector("ul");
const aloud = document.getElementById("troubles-said");
const caption = document.getElementById("caption");
const more = document.getElementById("troubles-more");
let known = "";
let all = false;

more.addEventListener("click", () => {
  all = !all;
  for (const [i, item] of [...list.children].entries()) item.hidden = !all && i >= FIRST;
  sayMore();
});

/** Show what is wrong now; it is read aloud only when something else is wrong than before. */
export function showTroubles(troubles) {
  banner.hidden = troubles.length === 0;
  keepChildren(list, troubles, {
    key: name,
    create: () =>
      make("li", {}, make("span", { class: "level" }), make("p", { class: "what" }), make("p", { class: "advice" })),
    update: (item, { level, text, advice }) => {
      item.hidden = !all && troubles.findIndex((each) => name(each) === item.dataset.key) >= FIRST;
      setAttribute(item, "data-level", level);
      setText(item.children[0], word(`trouble_${level}`));
      setText(item.children[1], said(text));
      setText(item.children[2], withOptions(said(advice)));
    },
  });
  sayMore();
  const names = troubles.map(name).sort().join("\n");
  if (names === known) return;
  const over = known !== "" && names === "";
  known = names;
  setText(aloud, over ? word("troubles_gone") : troubles.map(({ text }) => said(text)).join(" "));
}

function sayMore() {
  more.hidden = list.children.length <= FIRST;
  setText(more, word(all ? "troubles_fewer" : "troubles_more", { count: list.children.length - FIRST }));
  setAttribute(more, "aria-expanded", all);
}

/** Show what a demo says is going on. */
export function showCaption(text) {
  const words = said(text);
  caption.hidden = !words;
  if (caption.textContent === words) return;
  caption.textContent = words;
  caption.classList.remove("fresh");
  void caption.offsetWidth; // begins the fade anew
  caption.classList.add("fresh");
}

function name({ code, node }) {
  return `${code} ${node || ""}`;
}
