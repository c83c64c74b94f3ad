// The links to other views: a browser sends no key with them, so with a key their text is fetched and shown here.
import { hasKey, keyHeaders } from "./key.js";
import { word } from "./words.js";

const links = document.getElementById("links");
const LIMIT_MS = 10000;

/** Wire the links. */
export function startLinks() {
  links.addEventListener("click", async (event) => {
    const link = event.target.closest("a");
    if (!link || !hasKey() || link.origin !== location.origin) return;
    event.preventDefault();
    await openWithKey(link.href).catch((error) => alert(word("action_failed", { message: error.message })));
  });
}

/** Save what a link with `download` leads to, with our key where there is one. */
export async function saveWithKey(event) {
  const link = event.currentTarget;
  if (!hasKey() || link.href.startsWith("blob:")) return;
  event.preventDefault();
  const address = link.href;
  const answer = await fetch(address, { headers: keyHeaders(), signal: AbortSignal.timeout(LIMIT_MS) });
  link.href = URL.createObjectURL(await answer.blob());
  link.click();
  URL.revokeObjectURL(link.href);
  link.href = address;
}

/** Open the answer of a route as a text of its own. */
export async function openWithKey(address) {
  const answer = await fetch(address, { headers: keyHeaders(), signal: AbortSignal.timeout(LIMIT_MS) });
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  const text = new Blob([await answer.text()], { type: "text/plain;charset=utf-8" });
  location.assign(URL.createObjectURL(text)); // lives as long as this page
}
