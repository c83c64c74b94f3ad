// What the page says while nothing has been asked yet: how to ask, with this gateway's own address.
import { setText } from "./dom.js";
import { word } from "./words.js";

const section = document.getElementById("welcome");

/** Say whether anything has been asked since the start. */
export function isAsked({ queue }) {
  const ended = queue.served_total + queue.rejected_total + queue.timeouts_total + queue.cancelled_total;
  return ended + queue.waiting + queue.processing > 0;
}

/** Show it until the first request; stay hidden afterwards. */
export function showWelcome(snapshot, keys) {
  const { models, ready } = snapshot;
  section.hidden = !ready || isAsked(snapshot); // the banner says why it is not
  if (section.hidden) return;
  const body = { model: models[0]?.model || "MODEL", messages: [{ role: "user", content: "Hello!" }] };
  const quoted = JSON.stringify(body).replaceAll("'", "'\\''");
  const auth = keys ? "  -H 'Authorization: Bearer YOUR_KEY' \\\n" : "";
  setText(document.getElementById("curl"),
    `curl ${location.origin}/v1/chat/completions \\\n${auth}  -H 'Content-Type: application/json' \\\n  -d '${quoted}'`);
  setText(document.getElementById("base-url"),
    `export OPENAI_BASE_URL=${location.origin}/v1\nexport OPENAI_API_KEY=${keys ? "YOUR_KEY" : "none"}`);
}

/** Wire the copy buttons. */
export function startWelcome() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      await copy(document.getElementById(button.dataset.copy));
      const aloud = button.closest("section, dialog").querySelector("[role=status]");
      button.textContent = aloud.textContent = word("copied");
      setTimeout(() => (button.textContent = word("copy")), 2000);
    });
  }
}

/** Copy the text of an element; the clipboard is offered to secure pages only, the old way to all. */
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
  } catch {
    getSelection().selectAllChildren(element);
    document.execCommand("copy");
  }
}
