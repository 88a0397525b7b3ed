// The page: a header with the network's state, and one view, named by the part after '#'.
import { h } from "./dom.js";
import { clock, duration, number } from "./format.js";
import { begin, state, watch } from "./store.js";
import { overview } from "./overview.js";
import { corrections } from "./corrections.js";
import { arcs, arc } from "./arc.js";
import { why } from "./why.js";
import { letters, letter } from "./letters.js";

const VIEWS = { "": overview, corrections, arcs, arc, why, letters, letter };
const LINKS = [["", "Network"], ["corrections", "Corrections"], ["arcs", "Arcs"], ["letters", "Dead letters"]];
const PARENTS = { arc: "arcs", why: "corrections", letter: "letters" };

let leave = null;

/** `#/view/name?key=...` as the view, its name and its fields. */
function place() {
  const [path, fields] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...name] = path.split("/");
  return { view: view in VIEWS ? view : "", name: decodeURIComponent(name.join("/")), fields: new URLSearchParams(fields) };
}

function show() {
  const { view, name, fields } = place();
  leave?.();
  leave = null;
  const main = document.getElementById("main");
  const ended = [];
  const stay = (look) => {
    ended.push(watch(look));
    look([]);
  };
  main.replaceChildren(...[VIEWS[view]({ name, fields, watch: stay })].flat());
  leave = () => ended.forEach((end) => end());
  const here = PARENTS[view] ?? view;
  document.getElementById("views").replaceChildren(...LINKS.map(([to, text]) =>
    h("a", { href: `#/${to}`, "aria-current": to === here ? "page" : undefined }, text)));
}

let said = "";

function header() {
  const line = document.getElementById("state");
  const lags = Object.values(state.arcs).map((arc) => arc.lag_ms ?? 0);
  const held = Object.values(state.tasks).filter((task) => task.held && task.lag_ms > 1500).length;
  let text = "connecting";
  if (!state.connected && state.now_ms) text = "the server does not answer; trying again";
  else if (state.trouble) text = state.trouble;
  else if (state.newest_epoch === null) text = "nothing ingested yet";
  else {
    const lag = Math.max(0, ...lags);
    text = lag > 1000 ? `behind by ${duration(lag)}` : "up to date";
    if (held) text += `, ${number(held)} tasks held back`;
  }
  line.className = state.trouble || (!state.connected && state.now_ms) ? "trouble" : "";
  if (text !== said) line.textContent = said = text;
  line.title = state.now_ms ? `told at ${clock(state.now_ms)} UTC` : "";
}

addEventListener("hashchange", () => {
  show();
  document.getElementById("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});

try {
  await begin();
  document.getElementById("network").textContent = state.plan.network;
  document.title = `${state.plan.network} - errata`;
  show();
  watch(header);
  header();
} catch (error) {
  document.getElementById("main").replaceChildren(h("p", { class: "bad", role: "alert" }, error.message));
}
