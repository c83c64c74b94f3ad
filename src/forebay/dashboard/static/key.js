// The key of this gateway, if it asks for one: kept in this tab only, sent with every call.
import { word, onLanguage } from "./words.js";

const REMEMBERED = "forebay.key";
const form = document.getElementById("key-form");
const field = document.getElementById("key");
const why = document.getElementById("key-why");
const opener = document.getElementById("key-open");
const forget = document.getElementById("key-forget");
let key = read();
let changed = () => {};
let reason = "key_needed";

/** Return the headers that name us. */
export function keyHeaders() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Say whether calls carry a key. */
export function hasKey() {
  return Boolean(key);
}

/** Show the field because a call was refused without a key, or with this one. */
export function askForKey() {
  show(key ? "key_wrong" : "key_needed");
}

/** Offer the field in the header when the gateway has keys at all. */
export function offerKey(hasKeys) {
  opener.hidden = !hasKeys;
}

/** The stream is open: no key is missing. */
export function keyWorks() {
  if (reason !== "key_yours") form.hidden = true;
}

/** Wire the form; `onChange` is called when there is another key, or none. */
export function startKey(onChange) {
  changed = onChange;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(field.value.trim());
  });
  forget.addEventListener("click", () => useKey(""));
  opener.addEventListener("click", () => {
    if (!form.hidden) form.hidden = true;
    else {
      show("key_yours");
      field.focus();
    }
  });
  onLanguage(() => (why.textContent = word(reason)));
}

function show(because) {
  reason = because;
  why.dataset.word = because;
  why.textContent = word(because);
  forget.hidden = !key;
  form.hidden = false;
}

/** Use this key from now on; "" is none. */
export function useKey(text) {
  key = text;
  field.value = "";
  form.hidden = true;
  reason = "key_needed";
  try {
    if (text) sessionStorage.setItem(REMEMBERED, text);
    else sessionStorage.removeItem(REMEMBERED);
  } catch {
    // Storage may be forbidden: then the key lasts as long as the page.
  }
  changed();
}

function read() {
  try {
    return sessionStorage.getItem(REMEMBERED) || "";
  } catch {
    return "";
  }
}
