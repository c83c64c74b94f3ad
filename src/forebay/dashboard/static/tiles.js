// The large numbers and the small facts under them.
import { keepChildren, make, setAttribute, setText } from "./dom.js";
import { duration, longDuration, number, word } from "./words.js";

/** Show the numbers of a snapshot. */
export function showTiles(snapshot) {
  keepChildren(document.getElementById("tiles"), tiles(snapshot), {
    key: ({ key }) => key,
    create: ({ key }) =>
      make("div", { class: `tile tile-${key}` }, make("span", { class: "water", "aria-hidden": "true" }),
        make("dt"), make("dd", { class: "figure-large" }), make("dd", { class: "figure-note" })),
    update: (tile, { key, value, note, level, alarm, meaning }) => {
      const [water, name, figure, small] = tile.children;
      setText(name, word(key));
      setText(figure, value);
      setText(small, note);
      water.hidden = !level;
      water.style.setProperty("--level", Math.min(1, level || 0).toFixed(3));
      setAttribute(tile, "data-alarm", alarm ? "yes" : null);
      setAttribute(tile, "title", meaning ?? null);
    },
  });
  keepChildren(document.getElementById("facts"), facts(snapshot), {
    key: ([key]) => key,
    create: () => make("div", {}, make("dt"), make("dd")),
    update: (fact, [key, value, meaning]) => {
      setText(fact.children[0], word(key));
      setText(fact.children[1], value);
      setAttribute(fact, "title", meaning ?? null);
    },
  });
}

function tiles({ queue, nodes, draining }) {
  const usable = nodes.filter((node) => node.state === "online");
  const slots = usable.reduce((sum, node) => sum + node.slots, 0);
  const jobs = queue.processing_jobs;
  const places = queue.enabled && queue.max_size > 0;
  const service = queue.average_service_seconds;
  return [
    {
      key: "waiting",
      value: number(queue.waiting),
      note: draining ? word("draining_now") : places ? word("of_places", { max: queue.max_size }) : word("queue_off"),
      level: places ? queue.waiting / queue.max_size : 0,
      alarm: places && queue.waiting >= queue.max_size,
    },
    {
      key: "processing",
      value: number(queue.processing),
      note: slotsNote(slots, jobs),
      level: slots ? (queue.processing + jobs) / slots : 0,
    },
    {
      key: "average_wait",
      value: duration(queue.average_wait_seconds),
      note: service === null ? word("nothing_measured") : word("average_service", { time: duration(service) }),
    },
    {
      key: "first_token",
      value: duration(queue.first_token_p50_seconds),
      note: queue.first_token_p95_seconds === null ? word("no_stream_lately") : word("first_token_most", { time: duration(queue.first_token_p95_seconds) }),
      meaning: word("first_token_means"),
    },
    {
      key: "tokens_second",
      value: rate(queue.tokens_per_second),
      note: word(queue.tokens_per_second === null ? "nothing_lately" : "last_minute"),
      meaning: word("tokens_second_means"),
    },
    {
      key: "served_minute",
      value: number(queue.served_per_minute),
      note: word("since_start", { count: queue.served_total }),
    },
    {
      key: "rejected_minute",
      value: number(queue.rejected_per_minute),
      note: word("since_start", { count: queue.rejected_total + queue.timeouts_total }),
      alarm: queue.rejected_per_minute > 0,
    },
  ];
}

function rate(perSecond) {
  return perSecond === null ? word("none") : number(perSecond, perSecond < 10 ? 1 : 0);
}

/** What is in use is said of the slots there are: a node that drains has none, and jobs have theirs beside. */
function slotsNote(slots, jobs) {
  if (!slots) return word("no_slots");
  return jobs ? word("of_slots_jobs", { slots, jobs }) : word("of_slots", { slots });
}

/** How much of the prompts was cached where they ran, and what that saved; nothing with one node. */
function cached({ prefix_tokens_total: all, prefix_hit_tokens_total: hits, prefix_saved_seconds_total: saved }) {
  return all ? word("cached_share", { share: Math.round((100 * hits) / all), saved: longDuration(saved) }) : "–";
}

function facts({ queue, sessions, uptime_seconds }) {
  return [
    ["fact_sessions", number(sessions.held)],
    ["fact_pending", number(sessions.pending_prompts)],
    ["fact_timeouts", number(queue.timeouts_total)],
    ["fact_cancelled", number(queue.cancelled_total)],
    ["fact_retries", number(queue.retries_total)],
    ["fact_swaps", number(queue.model_swaps_total), word("fact_swaps_means")],
    ["fact_cached", cached(queue)],
    ["fact_jobs", number(queue.processing_jobs)],
    ["fact_uptime", longDuration(uptime_seconds)],
  ];
}
