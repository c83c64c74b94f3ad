// Commands in hints, made such that they reach this gateway: with its address, and with a key where it wants one.
const USUAL = "http://127.0.0.1:7800"; // where commands look by themselves
const COMMAND = /forebay (?:nodes (?:add|remove|drain|resume)|keys new|batch) [^\s,;。、]+/g;
let options = "";

/** Say whether this gateway wants keys. */
export function addressCommands(keys) {
  options = (location.origin === USUAL ? "" : ` --url ${location.origin}`) + (keys ? " --key-env FOREBAY_API_KEY" : "");
}

/** Return a hint whose commands name this gateway. */
export function withOptions(text) {
  return text.replace(COMMAND, (command) => command + options);
}
