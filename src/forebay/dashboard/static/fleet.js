// The gateways that share one queue: a small card each, and how the fleet is as a whole.
import { keepChildren, make, setAttribute, setText } from "./dom.js";
import { longDuration, number, word, wordOr } from "./words.js";

const section = document.getElementById("fleet");
const list = document.getElementById("fleet-list");
const OLD_S = 1; // younger figures are as good as new
const UNSEEING = ["alone", "cut_off"]; // modes in which a gateway knows no other's state

/** Show the fleet of a snapshot; a gateway on its own has none. */
export function showFleet(fleet) {
  section.hidden = !fleet;
  if (!fleet) return;
  const alive = fleet.replicas.filter(({ state }) => state !== "lost");
  setText(document.getElementById("fleet-count"), word("fleet_count", { alive: alive.length, total: fleet.replicas.length }));
  const mode = document.getElementById("fleet-mode");
  setAttribute(mode, "data-mode", fleet.mode);
  setText(mode, wordOr("mode_", fleet.mode, { epoch: fleet.epoch }));
  const here = fleet.replicas.find(({ name }) => name === fleet.me);
  keepChildren(list, fleet.replicas, {
    key: ({ name }) => name,
    create: makeReplica,
    update: (card, replica) => updateReplica(card, replica, { here, mode: fleet.mode }),
  });
  setText(document.getElementById("fleet-facts"), facts(fleet));
}

function facts({ epoch, failovers_total: failovers, outages_total: outages, counted_seconds_ago: age }) {
  const said = [word("fleet_facts", { epoch, failovers, outages })];
  if (age === null) said.push(word("fleet_never"));
  else if (age > OLD_S) said.push(word("fleet_old", { time: longDuration(age) }));
  return said.join(" ");
}

function makeReplica({ name }) {
  const card = make("li", { class: "card replica" });
  const part = (key, element) => (card[key] = element);
  card.append(
    make("div", { class: "card-head" },
      make("h3", { class: "node-name replica-name" }, name), part("state", make("span", { class: "state" }))),
    make("p", { class: "about" },
      part("version", make("span")), part("here", make("span", { class: "badge calm" })),
      part("settings", make("span", { class: "badge" })), part("heard", make("span"))),
    part("work", make("p", { class: "replica-work" })));
  return card;
}

function updateReplica(card, replica, { here, mode }) {
  const { version, waiting, running, lent } = replica;
  const unseen = UNSEEING.includes(mode);
  const state = !unseen || replica.state === "lost" ? replica.state : replica === here ? mode : "unseen";
  setAttribute(card, "data-state", state);
  setText(card.state, wordOr("replica_", state));
  setText(card.version, version);
  setAttribute(card.version, "class", here && version !== here.version ? "skewed" : null);
  card.here.hidden = replica !== here;
  setText(card.here, word("fleet_me"));
  card.settings.hidden = replica.same_settings || state === "lost";
  setText(card.settings, word("fleet_settings"));
  setAttribute(card.settings, "title", word("fleet_settings_means"));
  card.heard.hidden = !["lost", "unseen"].includes(state);
  setText(card.heard, word("fleet_heard", { time: longDuration(replica.heard_seconds) }));
  card.work.hidden = unseen || state === "lost";
  setText(card.work, word("fleet_work", { waiting: number(waiting), running: number(running), lent }));
}
