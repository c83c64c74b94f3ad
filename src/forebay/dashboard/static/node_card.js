// One node: its state, its slots as cells, models, meters, failures, and drain or resume for admins.
import { keepChildren, make, setAttribute, setText } from "./dom.js";
import { bytesOf, longDuration, number, percent, word, wordOr } from "./words.js";
import { makeActions, updateActions } from "./node_actions.js";

const CELLS_MAX = 32; // more slots than this are drawn as a bar
const MODELS_MAX = 6; // more than this are counted

/** Make the card of a node, still empty. */
export function makeCard(node) {
  const card = make("li", { class: "card" });
  const part = (name, element) => (card[name] = element);
  card.append(
    make("div", { class: "card-head" },
      part("title", make("h3", { class: "node-name" }, node.name)),
      part("state", make("span", { class: "state" }))),
    part("about", make("p", { class: "about" })),
    part("slots", make("div", { class: "slots" }, make("div", { class: "cells", "aria-hidden": "true" }), make("p"))),
    part("models", make("ul", { class: "models" })),
    part("meters", make("div", { class: "meters" })),
    part("speed", make("p", { class: "node-speed", hidden: true })),
    part("room", make("p", { class: "cache-room", hidden: true })),
    part("failures", make("p", { class: "failures" })),
    part("error", make("p", { class: "last-error", hidden: true })),
    part("actions", makeActions()));
  return card;
}

/** Fill the card with what is known now. */
export function updateCard(card, node, admin) {
  setAttribute(card, "data-state", node.state);
  setText(card.state, word(`state_${node.state}`));
  showAbout(card.about, node);
  showSlots(card.slots, node);
  showModels(card.models, node);
  keepChildren(card.meters, meters(node), { key: ({ key }) => key, create: makeMeter, update: updateMeter });
  const speed = node.speed ?? null;
  card.speed.hidden = speed === null;
  setText(card.speed, speed === null ? "" : word("node_speed", { speed: number(speed, 2), time: longDuration(node.speed_measured_seconds_ago) }));
  const room = node.kv_free_tokens ?? null;
  card.room.hidden = room === null;
  setText(card.room, room === null ? "" : word("cache_room", { tokens: number(room) }));
  const failures = failuresOf(node);
  card.failures.hidden = !failures;
  setText(card.failures, failures && `${word("failures_lately")}: ${failures}`);
  const error = recentError(node);
  card.error.hidden = !error;
  setText(card.error, error && word("last_error", { error }));
  updateActions(card.actions, node, admin);
}

/** Return how a node has failed in the last 15 minutes, in words; "" where it has not. */
export function failuresOf({ failures_15_minutes: failures }) {
  return Object.entries(failures).map(([kind, count]) => failureWords(kind, count)).join(", ");
}

/** Return the last error while it matters: until the node has worked again for 15 minutes. */
export function recentError(node) {
  return (node.state === "offline" || failuresOf(node)) && node.last_error ? node.last_error : "";
}

function failureWords(kind, count) {
  const words = wordOr("failure_", kind, { count });
  return words === kind ? word("failure_of_kind", { kind, count }) : words;
}

function showAbout(about, { kind, state_seconds, simulated, guarded }) {
  if (!about.children.length) {
    about.append(make("span"), make("span", { class: "badge" }), make("span", { class: "badge calm" }));
  }
  const since = word("state_since", { time: longDuration(state_seconds) });
  setText(about.children[0], kind ? `${kind} · ${since}` : since); // unknown until it has answered once
  about.children[1].hidden = !simulated;
  setText(about.children[1], word("simulated"));
  setAttribute(about.children[1], "title", word("simulated_means"));
  about.children[2].hidden = !guarded;
  setText(about.children[2], word("guarded"));
  setAttribute(about.children[2], "title", word("guarded_means"));
}

function showSlots(row, { slots, in_flight, slots_reason: reason }) {
  const cells = row.children[0];
  const asBar = slots > CELLS_MAX;
  cells.classList.toggle("as-bar", asBar);
  const wanted = asBar ? 1 : Math.max(slots, in_flight);
  while (cells.children.length > wanted) cells.lastChild.remove();
  while (cells.children.length < wanted) cells.append(make("i"));
  if (asBar) cells.children[0].style.setProperty("--share", Math.min(1, in_flight / slots).toFixed(3));
  else [...cells.children].forEach((cell, i) => cell.classList.toggle("used", i < in_flight));
  setText(row.children[1], word("slots_used", { used: in_flight, slots }));
  setAttribute(row, "title", reason ? word("slots_because", { slots, reason }) : null);
}

function showModels(list, { models, models_total, loaded, failing, state }) {
  const rank = (model) => (loaded?.includes(model) ? 0 : failing.includes(model) ? 1 : 2);
  const first = [...models].sort((a, b) => rank(a) - rank(b)).slice(0, MODELS_MAX);
  const chips = first.map((model) => {
    if (failing.includes(model)) return { text: model, look: "failing", label: word("model_failing", { model }) };
    if (loaded?.includes(model)) return { text: model, look: "loaded", label: word("model_loaded", { model }) };
    return { text: model, look: "known", label: model };
  });
  const others = models_total - first.length;
  if (others > 0) chips.push({ text: word("models_others", { count: others }), look: "note" });
  if (!models_total) chips.push({ text: word("models_none"), look: "note" });
  if (loaded === null && models_total && state === "online") chips.push({ text: word("models_all_loaded"), look: "note" });
  keepChildren(list, chips, {
    key: ({ text, look }) => (look === "note" ? `note ${text}` : text),
    create: () => make("li", {}, make("span", { "aria-hidden": "true" }), make("span", { class: "unseen" })),
    update: (chip, { text, look, label }) => {
      setAttribute(chip, "class", `chip ${look}`);
      setAttribute(chip, "title", label ?? text);
      setText(chip.children[0], text);
      setText(chip.children[1], label ?? text);
    },
  });
}

function meters({ gpu_load, vram_used_bytes: used, vram_total_bytes: total }) {
  const found = [];
  if (gpu_load !== null) found.push({ key: "gpu", share: gpu_load, text: percent(gpu_load) });
  if (used !== null && total) {
    found.push({ key: "vram", share: used / total, text: bytesOf(used, total) });
  }
  return found;
}

function makeMeter() {
  const bar = make("div", { class: "bar", role: "meter", "aria-valuemin": 0, "aria-valuemax": 100 }, make("i"));
  return make("div", { class: "meter" }, make("span", { class: "meter-name" }), bar, make("span", { class: "meter-value" }));
}

function updateMeter(meter, { key, share, text }) {
  const [name, bar, value] = meter.children;
  const part = Math.min(1, Math.max(0, share));
  setText(name, word(key));
  setText(value, text);
  setAttribute(bar, "aria-label", word(key));
  setAttribute(bar, "aria-valuenow", Math.round(part * 100));
  setAttribute(bar, "aria-valuetext", text);
  bar.children[0].style.setProperty("--share", part.toFixed(3));
}
