// Says in words how fresh the numbers are, and marks old ones as old.
import { setAttribute, setText } from "./dom.js";
import { longDuration, onLanguage, word } from "./words.js";

const OLD_MS = 2000; // four snapshots missed
const pill = document.getElementById("live");
const state = document.getElementById("live-state");
const age = document.getElementById("live-age");
let stream = null;

/** Follow a stream: `showLive` when its state changes, and once a second for its age. */
export function startLive(followed) {
  stream = followed;
  setInterval(showLive, 1000);
  onLanguage(showLive);
  showLive();
}

export function showLive() {
  const silent = stream.heardAt === null ? Infinity : performance.now() - stream.heardAt;
  const old = stream.state !== "live" || silent > OLD_MS;
  setAttribute(pill, "data-state", old && stream.state === "live" ? "late" : stream.state);
  setText(state, word(`live_${stream.state}`, { message: stream.message }));
  setText(age, old && silent < Infinity ? word("live_age", { age: longDuration(silent / 1000) }) : "");
  setAttribute(document.body, "data-old", old ? "yes" : null);
}
