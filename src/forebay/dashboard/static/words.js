// The language of the page: which one it is, its words filled in, and its numbers and times.
import en from "./words_en.js";
import ja from "./words_ja.js";

const LANGUAGES = { en, ja };
const REMEMBERED = "forebay.language";
const listeners = [];
let language = "en";
let plural, ordinals;

/** Choose what was chosen before, else the first language of the browser that we speak. */
export function startWords() {
  const wished = [remembered(), ...navigator.languages].map((tag) => (tag || "").slice(0, 2));
  use(wished.find((tag) => tag in LANGUAGES) || "en");
}

/** Change the language and remember it. */
export function speak(tag) {
  try {
    localStorage.setItem(REMEMBERED, tag);
  } catch {
    // Storage may be forbidden: then the choice lasts as long as the page.
  }
  use(tag);
  for (const listener of listeners) listener();
}

/** Call this after every change of language. */
export function onLanguage(listener) {
  listeners.push(listener);
}

export function currentLanguage() {
  return language;
}

/** Return the words of this key with the values filled in. */
export function word(key, values = {}) {
  const text = LANGUAGES[language][key];
  if (text === undefined) throw new Error(`words_${language}.js has no ${key}`);
  return text.replace(/\{(\w+)(?::([^|}]*)\|([^}]*))?\}/g, (_, name, one, other) => {
    const value = values[name];
    if (one !== undefined) return plural.select(value) === "one" ? one : other;
    return typeof value === "number" ? number(value) : String(value);
  });
}

/** Return the words of a key made of a prefix and a name from outside, or that name itself. */
export function wordOr(prefix, name, values) {
  const known = Object.hasOwn(LANGUAGES[language], prefix + name);
  return known ? word(prefix + name, values) : name;
}

/** Return what the server said in our language; its texts come in all of them. */
export function said(text) {
  return (text && (text[language] || text.en)) || "";
}

/** Fill in the words of the elements that name theirs: data-word and data-label. */
export function fillWords(root) {
  for (const element of root.querySelectorAll("[data-word]")) {
    element.textContent = word(element.dataset.word);
  }
  for (const element of root.querySelectorAll("[data-label]")) {
    element.setAttribute("aria-label", word(element.dataset.label));
  }
}

/** Return a number as people of this language write it. */
export function number(value, digits = 0) {
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return new Intl.NumberFormat(language, options).format(value);
}

/** Return 1st, 2nd, 3rd. */
export function ordinal(value) {
  const rule = ordinals.select(value);
  return word(`ordinal_${rule === "one" || rule === "two" || rule === "few" ? rule : "other"}`, { n: value });
}

/** Return a length of time, as exact as people need it. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return word("none");
  if (seconds < 0.0005) return word("seconds", { n: 0 });
  if (seconds < 1) return word("milliseconds", { n: Math.max(1, Math.round(seconds * 1000)) });
  if (seconds < 10) return word("seconds", { n: number(seconds, 1) });
  return longDuration(seconds);
}

/** Return a length of time for an axis: as short as it can be said. */
export function axisDuration(seconds) {
  const short = new Intl.NumberFormat(language, { maximumFractionDigits: 3 });
  if (seconds < 60) return word("seconds", { n: short.format(seconds) });
  return word("minutes", { n: short.format(seconds / 60) });
}

/** Return a length of time in whole seconds or more: for what counts up or down. */
export function longDuration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return word("seconds", { n: whole });
  if (whole < 600 && whole % 60) return word("minutes_seconds", { m: Math.floor(whole / 60), s: whole % 60 });
  if (whole < 3600) return word("minutes", { n: Math.floor(whole / 60) });
  const hours = Math.floor(whole / 3600);
  if (hours < 48) return word("hours_minutes", { h: hours, m: Math.floor((whole % 3600) / 60) });
  return word("days_hours", { d: Math.floor(hours / 24), h: hours % 24 });
}

/** Return a size of memory. */
export function bytes(count) {
  const mib = count / 2 ** 20;
  if (mib < 1024) return word("bytes_mib", { n: Math.round(mib) });
  return word("bytes_gib", { n: number(mib / 1024, 1) });
}

/** Return how much of a memory is used, with the unit said once. */
export function bytesOf(used, total) {
  const unit = total < 2 ** 30 ? 2 ** 20 : 2 ** 30;
  return word("vram_value", { used: number(used / unit, total < 2 ** 30 ? 0 : 1), total: bytes(total) });
}

export function percent(share) {
  return word("percent", { n: Math.round(share * 100) });
}

/** Return the time of day, with or without seconds. */
export function clockTime(milliseconds, withSeconds = true) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (withSeconds) options.second = "2-digit";
  return new Intl.DateTimeFormat(language, options).format(milliseconds);
}

/** Return a day and the time, as short as people of this language write it. */
export function dateTime(milliseconds) {
  const options = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Intl.DateTimeFormat(language, options).format(milliseconds);
}

function use(tag) {
  language = tag;
  plural = new Intl.PluralRules(tag);
  ordinals = new Intl.PluralRules(tag, { type: "ordinal" });
  document.documentElement.lang = tag;
  fillWords(document);
}

function remembered() {
  try {
    return localStorage.getItem(REMEMBERED);
  } catch {
    return null;
  }
}
