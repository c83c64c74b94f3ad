// Follows GET /events for ever: connects, listens, notices silence, and connects again.
import { readEvents } from "./sse.js";
import { keyHeaders } from "./key.js";
import { currentLanguage } from "./words.js";

const SILENCE_MS = 5000; // ten snapshots missed: the connection is dead, whatever TCP says
const OPENING_MS = 3000; // a gateway answers at once, or the connection that the browser kept open is dead, too
const BACKOFF_MS = [1000, 1500, 2500, 4000, 5000];
const HIDDEN_MS = 15000; // a hidden tab gives its connection back: browsers have six for each host

/** Calls back with each hello and snapshot, and with {state, heardAt, message} when that changes. */
export class Stream {
  constructor({ onHello, onSnapshot, onState }) {
    Object.assign(this, { onHello, onSnapshot, onState });
    this.state = "connecting";
    this.heardAt = null; // performance.now() of the last snapshot
    this.openedAt = null; // and of the answer that is being read
    this.failures = 0;
    this.attempt = null; // the AbortController of the connection in use
    this.timer = null;
  }

  /** Start, and go on until the page goes away. */
  start() {
    document.addEventListener("visibilitychange", () => this.visibility());
    addEventListener("online", () => this.again());
    addEventListener("pagehide", () => this.pause());
    addEventListener("pageshow", (event) => event.persisted && this.again());
    setInterval(() => this.watch(), 1000);
    this.connect();
  }

  /** Connect anew at once: with another key, or after the network came back. */
  again() {
    this.failures = 0;
    this.attempt?.abort();
    this.connect();
  }

  /** Give the connection back until somebody looks again. */
  pause() {
    this.say("paused");
    clearTimeout(this.timer);
    this.attempt?.abort();
  }

  visibility() {
    clearTimeout(this.hiding);
    if (document.hidden) {
      this.hiding = setTimeout(() => this.pause(), HIDDEN_MS);
    } else if (this.state !== "live" && this.state !== "key") {
      this.again();
    }
  }

  watch() {
    if (this.openedAt === null || document.hidden) return;
    const silent = performance.now() - Math.max(this.heardAt ?? 0, this.openedAt);
    if (silent > SILENCE_MS) this.again();
  }

  async connect() {
    clearTimeout(this.timer);
    const attempt = (this.attempt = new AbortController());
    this.openedAt = null;
    this.say(this.heardAt === null ? "connecting" : "reconnecting");
    const opening = setTimeout(() => attempt.abort(), OPENING_MS);
    try {
      const headers = { Accept: "text/event-stream", "Accept-Language": currentLanguage(), ...keyHeaders() };
      const answer = await fetch("/events", { headers, cache: "no-store", signal: attempt.signal });
      clearTimeout(opening);
      if (answer.status === 401 || answer.status === 403) return this.say("key");
      if (!answer.ok) {
        const body = await answer.json().catch(() => null);
        throw new Refusal(body?.error?.message || `HTTP ${answer.status}`);
      }
      this.openedAt = performance.now();
      for await (const { event, data } of readEvents(answer.body)) {
        if (attempt !== this.attempt) return;
        if (event === "hello") drawn(() => this.onHello(JSON.parse(data)));
        if (event === "snapshot") this.heard(JSON.parse(data));
      }
      throw new Error("the stream ended");
    } catch (error) {
      clearTimeout(opening);
      if (attempt !== this.attempt || this.state === "paused") return; // another one took over
      if (attempt.signal.aborted) return this.connect(); // it took too long to open: try another connection
      attempt.abort();
      this.later(error instanceof Refusal ? error.message : null);
    }
  }

  heard(snapshot) {
    this.failures = 0;
    this.heardAt = performance.now();
    this.say("live");
    drawn(() => this.onSnapshot(snapshot));
  }

  later(message) {
    this.say(message ? "refused" : "reconnecting", message);
    const base = BACKOFF_MS[Math.min(this.failures, BACKOFF_MS.length - 1)];
    this.failures += 1;
    const jitter = 0.8 + 0.2 * Math.random(); // many pages must not come back in one instant
    this.timer = setTimeout(() => this.connect(), base * jitter);
  }

  say(state, message = null) {
    if (state === this.state && message === this.message) return;
    this.state = state;
    this.message = message;
    this.onState(this);
  }
}

/** Draw; a fault of the drawing is told in the console and does not end the stream. */
function drawn(draw) {
  try {
    draw();
  } catch (error) {
    reportError(error);
  }
}

/** The gateway answered, and said no in words. */
class Refusal extends Error {}
