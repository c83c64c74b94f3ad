// One message on its way: sent, in line, answered token by token. Knows HTTP, draws nothing.
import { readEvents } from "./sse.js";
import { keyHeaders } from "./key.js";
import { currentLanguage } from "./words.js";

const TOKENS_MAX = 200; // an answer long enough to watch, short enough not to be in anyone's way
const TEXT_MAX = 20000; // characters kept of an answer

/** Calls `onChange(attempt)` whenever something about it is new. */
export class Attempt {
  constructor({ number, model, priority, message, onChange }) {
    Object.assign(this, { number, model, priority, message, onChange });
    this.id = `try-${randomText()}`;
    this.state = "sending"; // then waiting, starting, answering; at last done, failed or stopped
    this.place = null; // {position, p50, p90, reason, better, at}: what the gateway said of our place, and when
    this.text = "";
    this.thought = ""; // what a reasoning model thinks before it answers
    this.node = this.waitedSeconds = this.failure = null;
    this.sentAt = this.firstAt = this.lastAt = null;
    this.tokens = 0;
    this.control = new AbortController();
  }

  get active() {
    return ["sending", "waiting", "starting", "answering"].includes(this.state);
  }

  /** Give up; the gateway notices that we left and frees the place or the slot. */
  stop() {
    if (!this.active) return;
    this.become("stopped");
    this.control.abort();
  }

  /** Send it and read the answer to its end. Never throws. */
  async run() {
    this.sentAt = performance.now();
    try {
      await this.read(await this.send());
    } catch (error) {
      if (this.state === "stopped") return;
      this.failure ??= { network: this.firstAt === null ? "try_network" : "try_cut" };
      this.become("failed");
      if (!(error instanceof TypeError || error.name === "Failed" || error.name === "AbortError")) reportError(error);
    }
  }

  /** Ask where we are in line; called about once a second while nothing has come. */
  async look() {
    const answer = await fetch(`/v1/queue/${this.id}`, {
      headers: keyHeaders(), cache: "no-store", signal: AbortSignal.timeout(4000),
    }).catch(() => null);
    if (!answer?.ok || !this.active || this.state === "answering") return;
    const told = await answer.json().catch(() => null);
    if (!told || !this.active || this.state === "answering") return;
    if (told.state === "waiting") {
      const { p50, p90 } = told.estimated_wait_seconds;
      this.queued({ position: told.position, p50, p90, reason: told.reason_code, better: told.better_node });
    } else if (told.state === "running") {
      this.become("starting");
    }
  }

  send() {
    return fetch("/v1/chat/completions", {
      method: "POST",
      signal: this.control.signal,
      headers: {
        ...keyHeaders(),
        "Content-Type": "application/json",
        "Accept-Language": currentLanguage(),
        "X-Request-Id": this.id,
        "X-Forebay-Priority": this.priority,
      },
      body: JSON.stringify({
        model: this.model,
        messages: [{ role: "user", content: this.message }],
        max_tokens: TOKENS_MAX,
        stream: true,
      }),
    });
  }

  async read(answer) {
    const { headers } = answer;
    this.node = headers.get("X-Forebay-Node") || this.node;
    if (headers.has("X-Queue-Wait-Ms")) this.waitedSeconds = Number(headers.get("X-Queue-Wait-Ms")) / 1000;
    if (!answer.ok) {
      const body = await answer.json().catch(() => null);
      const { message, code, hint } = body?.error || { message: `HTTP ${answer.status}` };
      this.fail({ message, code, hint, status: answer.status, retryAfter: Number(headers.get("Retry-After")) || null });
    }
    if (this.node) this.become("starting");
    let ended = false;
    for await (const { comment, data } of readEvents(answer.body)) {
      if (comment !== undefined) this.comment(comment);
      else if (data === "[DONE]") ended = true;
      else ended = this.chunk(JSON.parse(data)) || ended;
    }
    if (!ended) this.fail({ network: "try_cut" });
    this.become("done");
  }

  /** Take a comment of the gateway: `queued position=3 eta=12`, `started node=gpu1 waited_ms=20123`. */
  comment(text) {
    const [what, ...pairs] = text.split(/\s+/);
    const told = Object.fromEntries(pairs.map((pair) => pair.split("=")));
    if (what === "queued" && told.position) {
      this.queued({ position: Number(told.position), p50: told.eta ? Number(told.eta) : null, p90: null, reason: null });
    }
    if (what === "started") {
      this.node = told.node || this.node;
      if (told.waited_ms) this.waitedSeconds = Number(told.waited_ms) / 1000;
      this.become("starting");
    }
  }

  /** Take one event of the answer; return whether it says that the answer is whole. */
  chunk(event) {
    if (event.error) {
      const { message, code, hint, retry_after: retryAfter } = event.error;
      this.fail({ message: message ?? String(event.error), code, hint, retryAfter: retryAfter ?? null });
    }
    const choice = event.choices?.[0];
    const text = choice?.delta?.content || choice?.message?.content || "";
    const thought = choice?.delta?.reasoning_content || choice?.delta?.reasoning || "";
    if (text || thought) {
      this.lastAt = performance.now();
      this.firstAt ??= this.lastAt;
      this.tokens += 1;
      this.text = (this.text + text).slice(0, TEXT_MAX);
      this.thought = (this.thought + thought).slice(0, TEXT_MAX);
      this.become("answering");
    }
    this.tokens = event.usage?.completion_tokens ?? event.timings?.predicted_n ?? this.tokens;
    return Boolean(choice?.finish_reason);
  }

  /** Seconds until its turn, counting down since we were told; null while nobody knows. */
  secondsLeft(which = "p50") {
    const told = this.place?.[which];
    return told === null || told === undefined ? null : told - (performance.now() - this.place.at) / 1000;
  }

  /** Tokens a second between the first and the last. */
  get rate() {
    const seconds = (this.lastAt - this.firstAt) / 1000;
    return this.tokens > 2 && seconds > 0.05 ? (this.tokens - 1) / seconds : null;
  }

  queued(place) {
    this.place = { ...place, at: performance.now() };
    this.become("waiting");
  }

  fail(failure) {
    this.failure = failure;
    throw Object.assign(new Error(failure.message), { name: "Failed" });
  }

  become(state) {
    this.state = this.state === "stopped" ? "stopped" : state;
    this.onChange(this);
  }
}

/** Return letters that nobody else has; randomUUID is offered to secure pages only. */
function randomText() {
  return [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(36).padStart(2, "0")).join("");
}
