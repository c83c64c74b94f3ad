// What only admins see: the keys of this gateway, listed, made and revoked.
import { make } from "./dom.js";
import { Listing } from "./listing.js";
import { openNewKey } from "./new_key.js";
import { dateTime, fillWords, word, wordOr } from "./words.js";

const LIMITS = ["max_running", "requests_per_minute", "tokens_per_minute", "tokens_per_day"];

/** What a key may do at most, and its weight where that is not 1. */
function limits(key) {
  const found = LIMITS.filter((name) => key[name]).map((name) => word(`limit_${name}`, { n: key[name] }));
  if (key.weight !== 1) found.push(word("limit_weight", { n: String(key.weight) }));
  return found.join(", ") || word("none");
}

/** Make the list of keys. */
export function keyList() {
  const yes = (value) => (value ? word("yes") : "");
  const list = new Listing({
    name: "key-list",
    title: "keys_title",
    empty: "keys_empty",
    admins: true,
    key: ({ name }) => name,
    columns: [
      { name: "key_name", value: ({ name }) => name, text: ({ name }) => name },
      { name: "user", value: ({ user }) => user, text: ({ user, trust_user }) => (trust_user ? `${user}/*` : user) },
      { name: "key_admin", value: ({ admin }) => Number(admin), text: ({ admin }) => yes(admin) },
      { name: "models_title", text: ({ models }) => models?.join(", ") || word("list_all") },
      { name: "key_priority", text: ({ max_priority }) => wordOr("priority_", max_priority) },
      { name: "key_has_limits", text: limits },
      { name: "key_origin", value: ({ origin }) => origin, text: ({ origin }) => wordOr("key_from_", origin) },
      { name: "created", end: true, value: ({ created_at }) => created_at, text: ({ created_at }) => (created_at ? dateTime(Date.parse(created_at)) : word("none")) },
      { name: "key_by", text: ({ created_by }) => created_by || "" },
    ],
    act: ({ name, origin }) => (origin === "settings" ? null : {
      label: word("revoke"), name: word("revoke_key", { name }), sure: word("revoke_sure", { name }), yes: word("revoke_yes"),
      method: "DELETE", path: `/admin/keys/${encodeURIComponent(name)}`, done: word("revoked", { name }),
    }),
    read: async ({ get }) => ({ rows: (await get("/admin/keys")).data, more: false }),
  });
  const opener = make("button", { type: "button", class: "quiet", "data-word": "key_new" });
  opener.addEventListener("click", () => openNewKey({ isFirst: list.rows?.length === 0, onMade: () => list.poll() }));
  list.tools.append(opener);
  fillWords(list.tools);
  return list;
}
