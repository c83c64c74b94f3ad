// One message of the try-it panel as a card: its place in line, the count-down, the answer.
import { make, setAttribute, setText } from "./dom.js";
import { duration, longDuration, number, ordinal, word, wordOr } from "./words.js";

const DOTS_MAX = 12;

/** Make the card of an attempt. */
export function makeTry() {
  const card = make("li", { class: "attempt" });
  card.head = make("h3");
  card.status = make("p", { class: "attempt-status" });
  card.line = make("div", { class: "queue-dots", "aria-hidden": "true" });
  card.note = make("p", { class: "attempt-note" });
  card.thought = make("p", { class: "attempt-thought", hidden: true });
  card.answer = make("p", { class: "attempt-answer" });
  card.append(make("div", { class: "attempt-head" }, card.head, card.status), card.line, card.note, card.thought, card.answer);
  return card;
}

/** Fill the card. */
export function updateTry(card, attempt) {
  setAttribute(card, "data-state", attempt.state);
  setText(card.head, word("try_card", { number: attempt.number }));
  setText(card.status, status(attempt));
  setText(card.note, note(attempt));
  showLine(card.line, attempt);
  card.thought.hidden = !attempt.thought;
  setText(card.thought, attempt.thought);
  setText(card.answer, attempt.state === "done" && !attempt.text ? word("try_empty") : attempt.text);
}

/** Return in a few words where an attempt stands. */
export function status(attempt) {
  switch (attempt.state) {
    case "waiting":
      return `${word("try_place", { place: ordinal(attempt.place.position) })} · ${estimate(attempt)}`;
    case "starting":
      return attempt.node ? word("try_starting_on", { node: attempt.node }) : word("try_starting");
    default:
      return word(`try_${attempt.state}`);
  }
}

/** Return why an attempt failed. */
export function failure({ network, message, hint, code, retryAfter }) {
  if (network) return word(network);
  const parts = hint ? [message, hint] : [message];
  if (code) parts.push(word("try_code", { code }));
  if (retryAfter) parts.push(word("try_retry_after", { time: longDuration(retryAfter) }));
  return parts.join(" · ");
}

function estimate(attempt) {
  const left = attempt.secondsLeft();
  if (left === null) return word("try_no_estimate");
  return left < 0.5 ? word("try_any_moment") : word("try_about", { time: longDuration(left) });
}

function note(attempt) {
  if (attempt.failure && attempt.state === "failed") return failure(attempt.failure);
  if (attempt.state === "waiting") {
    const { reason, better, p90 } = attempt.place;
    const parts = [];
    if (better) parts.push(whyBetter(better));
    else if (reason) parts.push(wordOr("reason_", reason));
    const most = attempt.secondsLeft("p90");
    if (p90 !== null && most > 0.5) parts.push(word("try_up_to", { time: longDuration(most) }));
    return parts.join(" · ");
  }
  return ["answering", "done", "stopped"].includes(attempt.state) ? figures(attempt).join(" · ") : "";
}

function whyBetter({ node, why, times_as_fast: times, cached_tokens: cached, prompt_tokens: prompt, seconds_gained: gained, seconds_left: left }) {
  const because = word(`better_${why}`, { times: number(times, 1), cached: number(cached), prompt: number(prompt) });
  return word("try_better_node", { node, because, gained: duration(gained), left: longDuration(left) });
}

function figures(attempt) {
  const parts = [];
  if (attempt.node) parts.push(word("try_on", { node: attempt.node }));
  const waited = attempt.waitedSeconds;
  if (waited !== null) parts.push(waited < 0.001 ? word("try_direct") : word("try_waited", { time: duration(waited) }));
  if (attempt.firstAt !== null) parts.push(word("try_first_token", { time: duration((attempt.firstAt - attempt.sentAt) / 1000) }));
  if (attempt.rate !== null) parts.push(word("try_rate", { rate: number(attempt.rate, attempt.rate < 10 ? 1 : 0) }));
  return parts;
}

/** Those before us as empty dots, ourselves as a full one, the slot at the end. */
function showLine(line, { state, place }) {
  const position = state === "waiting" ? Math.min(place.position, DOTS_MAX) : state === "sending" ? 0 : -1;
  line.hidden = position < 0;
  const wanted = Math.max(0, position);
  while (line.children.length > wanted) line.lastChild.remove();
  while (line.children.length < wanted) line.append(make("i"));
  [...line.children].forEach((dot, i) => dot.classList.toggle("us", i === wanted - 1));
}
