// The page begins here: what comes from the gateway is handed to the parts that draw it.
import { addressCommands } from "./commands.js";
import { showFleet } from "./fleet.js";
import { History } from "./history.js";
import { showJobs } from "./jobs.js";
import { askForKey, hasKey, keyWorks, offerKey, startKey } from "./key.js";
import { startLinks } from "./links.js";
import { showLists, startLists } from "./lists.js";
import { showLive, startLive } from "./live.js";
import { showModels } from "./models.js";
import { offerKeyPriorities } from "./new_key.js";
import { showNodes } from "./nodes.js";
import { showProblems } from "./problems.js";
import { Stream } from "./stream.js";
import { startTheme } from "./theme.js";
import { showTiles } from "./tiles.js";
import { Timeline } from "./timeline.js";
import { showCaption, showTroubles } from "./troubles.js";
import { foldTryIt, forgetModels, offerModels, offerPriorities, startTryIt } from "./try_it.js";
import { currentLanguage, onLanguage, speak, startWords } from "./words.js";
import { isAsked, showWelcome, startWelcome } from "./welcome.js";

startWords();
startTheme(document.getElementById("theme"));

let hello = null;
let snapshot = null;
const history = new History();
const timeline = new Timeline(history);
const stream = new Stream({
  onHello(told) {
    hello = told;
    history.replace(told.priorities, told.history);
    document.getElementById("version").textContent = told.gateway;
    keyWorks();
    offerKey(told.keys);
    addressCommands(told.keys);
    showLists({ admin: told.admin, key: told.keys && hasKey() });
    offerPriorities(told.priorities);
    offerKeyPriorities(told.priorities);
    timeline.draw();
  },
  onSnapshot(told) {
    snapshot = told;
    if (history.add(told.sample_number, told.sample, told.at)) timeline.draw();
    if (!document.hidden) show();
  },
  onState({ state }) {
    if (state === "key") {
      hello = snapshot = null;
      reveal(false);
      showLists({ admin: false, key: false });
      askForKey();
    }
    showLive();
  },
});

/** Show figures and links only where there are figures: before a key is given nothing is claimed. */
function reveal(known) {
  for (const id of ["shown", "links"]) document.getElementById(id).hidden = !known;
}

function show() {
  if (!snapshot || !hello) return;
  reveal(true);
  showCaption(snapshot.caption);
  showTroubles(snapshot.troubles);
  showWelcome(snapshot, hello.keys);
  if (isAsked(snapshot)) foldTryIt();
  showTiles(snapshot);
  showFleet(snapshot.fleet);
  showNodes(snapshot.nodes, hello.admin);
  showModels(snapshot.models);
  showProblems(snapshot.problems);
  showJobs(snapshot.jobs);
  offerModels(snapshot);
}

const language = document.getElementById("language");
language.value = currentLanguage();
language.addEventListener("change", () => speak(language.value));
onLanguage(() => {
  if (hello) offerPriorities(hello.priorities);
  show();
});

startKey(() => {
  forgetModels();
  stream.again();
});
startWelcome();
startTryIt();
startLinks();
startLists();
startLive(stream);
stream.start();
