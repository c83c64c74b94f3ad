// The try-it panel: send a message or a few at once, and watch them go through the line.
import { Attempt } from "./attempt.js";
import { failure, makeTry, status, updateTry } from "./try_card.js";
import { keepChildren, make, setText } from "./dom.js";
import { askForKey, keyHeaders } from "./key.js";
import { onLanguage, ordinal, word, wordOr } from "./words.js";

const AT_ONCE_MAX = 4; // browsers have six connections for each host: one for /events, one to look around
const SHOWN_MAX = 8;
const LOOK_MS = 1000;
const AGAIN_MS = 5000; // until the models are asked for again, where that failed
const TICK_MS = 250; // of the count-down
const SAID_MAX = 300; // characters of an answer that are read aloud

const field = (name) => document.getElementById(`try-${name}`);
const list = document.getElementById("tries");
const aloud = document.getElementById("tries-said");
const fold = document.getElementById("try-fold");
let attempts = []; // the newest first
let folded = false;
let sent = 0;
let models = [];
let modelsWere = null;
let touched = false;
let visited = false;
let looking = false;

/** Wire the panel. */
export function startTryIt() {
  const message = field("message");
  message.value = word("try_first");
  message.addEventListener("input", () => (touched = true));
  message.addEventListener("focus", () => {
    if (!visited && !touched) message.select(); // what is typed first takes the place of the example
    visited = true;
  });
  message.addEventListener("mousedown", (event) => {
    if (visited || touched) return;
    event.preventDefault(); // the browser would put the caret where the click was, and select nothing
    message.focus();
  });
  message.addEventListener("keydown", (event) => {
    const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing; // Japanese is composed with Enter
    if (!sends) return;
    event.preventDefault();
    field("form").requestSubmit();
  });
  field("form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  field("stop").addEventListener("click", () => {
    for (const attempt of attempts) attempt.stop();
    message.focus();
  });
  document.getElementById("welcome-go").addEventListener("click", (event) => {
    event.preventDefault();
    fold.open = true;
    message.focus();
    message.scrollIntoView({ block: "center" });
  });
  onLanguage(() => {
    if (!touched) message.value = word("try_first");
    showModelChoice();
    draw();
  });
  setInterval(() => attempts.some(({ state }) => state === "waiting") && draw(), TICK_MS);
}

/** Fold the panel once, when others have asked something, unless somebody is at it. */
export function foldTryIt() {
  if (folded || attempts.length || fold.contains(document.activeElement)) return;
  folded = true;
  fold.open = false;
}

/** Offer the priorities of this gateway. */
export function offerPriorities(priorities) {
  const select = field("priority");
  const chosen = select.value || (priorities.includes("normal") ? "normal" : priorities[0]);
  select.replaceChildren(...priorities.map((name) => make("option", { value: name }, wordOr("priority_", name))));
  select.value = priorities.includes(chosen) ? chosen : priorities[0];
}

/** Ask which models there are, if what the nodes offer has changed since. */
export async function offerModels(snapshot) {
  const names = snapshot.models.map(({ model }) => model).sort(); // they come in the order of what they have to do
  const now = JSON.stringify([names, snapshot.nodes.map(({ state }) => state)]);
  if (now === modelsWere) return;
  modelsWere = now;
  const options = { headers: keyHeaders(), cache: "no-store", signal: AbortSignal.timeout(5000) };
  const answer = await fetch("/v1/models", options).catch(() => null);
  const told = answer?.ok ? await answer.json().catch(() => null) : null;
  if (!told) {
    setTimeout(forgetModels, AGAIN_MS);
    return;
  }
  if (JSON.stringify(told.data) === JSON.stringify(models)) return; // an open list stays as it is
  models = told.data;
  showModelChoice();
}

/** Forget which models there were: another key may see others. */
export function forgetModels() {
  modelsWere = null;
}

function showModelChoice() {
  const select = field("model");
  const chosen = select.value;
  const options = models.map(({ id, owned_by }) =>
    make("option", { value: id }, owned_by === "forebay-sim" ? word("try_model_simulated", { model: id }) : id));
  if (!options.length) options.push(make("option", { value: "" }, word("try_model_none")));
  select.replaceChildren(...options);
  if (models.some(({ id }) => id === chosen)) select.value = chosen;
}

function send() {
  const message = field("message").value.trim();
  const model = field("model").value;
  const running = attempts.filter(({ active }) => active).length;
  const copies = Math.min(Number(field("copies").value), AT_ONCE_MAX - running);
  if (!message) return complain(word("try_no_message"));
  if (!model) return complain(word("try_no_model"));
  if (copies < 1) return complain(word("try_too_many", { max: AT_ONCE_MAX }));
  complain("");
  const fresh = Array.from({ length: copies }, () => {
    sent += 1;
    return new Attempt({ number: sent, model, message, priority: field("priority").value, onChange: changed });
  });
  const kept = [...fresh, ...attempts.filter(({ active }) => active), ...attempts.filter(({ active }) => !active)];
  attempts = kept.slice(0, SHOWN_MAX);
  draw();
  for (const attempt of fresh) attempt.run();
  look();
}

/** Ask for the places of those in line, one after the other, until none is. */
async function look() {
  if (looking) return;
  looking = true;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, attempts.some(({ place }) => place) ? LOOK_MS : LOOK_MS / 4));
    const inLine = attempts.filter(({ state }) => state === "sending" || state === "waiting" || state === "starting");
    if (!inLine.length) break;
    for (const attempt of inLine) await attempt.look();
  }
  looking = false;
}

function changed(attempt) {
  if (attempt.failure?.status === 401) askForKey();
  announce(attempt);
  if (!changed.planned) {
    changed.planned = true; // tokens come faster than anyone reads: draw once a frame
    requestAnimationFrame(() => {
      changed.planned = false;
      draw();
    });
  }
}

/** Tell a screen reader the place once, and how it ended. */
function announce(attempt) {
  if (attempt.told === attempt.state) return;
  attempt.told = attempt.state;
  const { number } = attempt;
  if (attempt.state === "waiting") {
    setText(aloud, word("try_said_place", { number, place: ordinal(attempt.place.position) }));
  } else if (attempt.state === "failed") {
    setText(aloud, word("try_said_failed", { number, message: failure(attempt.failure) }));
  } else if (attempt.state === "done") {
    setText(aloud, word("try_said_done", { number, answer: attempt.text.slice(0, SAID_MAX) || status(attempt) }));
  }
}

function draw() {
  keepChildren(list, attempts, { key: ({ id }) => id, create: makeTry, update: updateTry });
  field("stop").disabled = !attempts.some(({ active }) => active);
}

function complain(text) {
  field("problem").hidden = !text;
  setText(field("problem"), text);
}
