// Axes: which round numbers to write beside a chart, and where a value lies on it.

const TIME_STEPS = [1, 5, 10, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600, 7200, 10800, 21600]; // seconds
const EDGE = 0.03;

/** Return the round top of an axis that holds `most`, and its ticks, about `count` of them. */
export function niceTicks(most, count, whole) {
  const rough = Math.max(most || 1, whole ? count : 0.01) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 2.5, 5, 10].map((factor) => factor * power);
  const step = steps.find((size) => size >= rough * 0.999 && (!whole || Number.isInteger(size)));
  const ticks = [];
  for (let i = 0; i * step < most * 1.0001 || i < 2; i += 1) ticks.push(i * step);
  if (ticks.at(-1) < most) ticks.push(ticks.length * step);
  return { top: ticks.at(-1), ticks };
}

/** Return moments on round clock times, as milliseconds, at most `count` of them. */
function timeTicks(fromMs, toMs, count) {
  const span = (toMs - fromMs) / 1000;
  const step = (TIME_STEPS.find((seconds) => span / seconds <= count) || 43200) * 1000;
  const offset = new Date(fromMs).getTimezoneOffset() * 60000; // round in local time
  const ticks = [];
  for (let at = Math.ceil((fromMs - offset) / step) * step + offset; at <= toMs; at += step) ticks.push(at);
  return { ticks, withSeconds: step < 60000 };
}

/** Return an axis of clock times for samples `sampleMs` apart; times too near the ends to be written are left out. */
export function clockAxis({ from, to, timeOf, sampleMs }, write) {
  const edge = EDGE * (to - from);
  return (count) => {
    const { ticks, withSeconds } = timeTicks(timeOf(from), timeOf(to), count);
    return ticks
      .map((at) => ({ at: to - (timeOf(to) - at) / sampleMs, label: write(at, withSeconds) }))
      .filter(({ at }) => at >= from + edge && at <= to - edge);
  };
}

/** Return how many samples one bar holds, so that bars stay wide enough to see. */
export function barSeconds(span) {
  return [1, 2, 5, 10, 15, 30].find((seconds) => span / seconds <= 64) || 30;
}
