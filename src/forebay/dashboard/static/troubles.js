// The banner that says what is wrong and what to do, and the caption of a demo.
import { keepChildren, make, setAttribute, setText } from "./dom.js";
import { said, word } from "./words.js";

const banner = document.getElementById("troubles");
const list = banner.querySelector("ul");
const aloud = document.getElementById("troubles-said");
const caption = document.getElementById("caption");
let known = "";

/** Show what is wrong now; it is read aloud only when something else is wrong than before. */
export function showTroubles(troubles) {
  banner.hidden = troubles.length === 0;
  keepChildren(list, troubles, {
    key: name,
    create: () =>
      make("li", {}, make("span", { class: "level" }), make("p", { class: "what" }), make("p", { class: "advice" })),
    update: (item, { level, text, advice }) => {
      setAttribute(item, "data-level", level);
      setText(item.children[0], word(`trouble_${level}`));
      setText(item.children[1], said(text));
      setText(item.children[2], said(advice));
    },
  });
  const names = troubles.map(name).sort().join("\n");
  if (names === known) return;
  const over = known !== "" && names === "";
  known = names;
  setText(aloud, over ? word("troubles_gone") : troubles.map(({ text }) => said(text)).join(" "));
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
