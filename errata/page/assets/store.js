// What the page knows: the network, and its state as the server tells it by server-sent events.

const MOST_CORRECTIONS = 2_000;

export const state = {
  plan: null, tasks: {}, arcs: {}, refused: {}, holds: [], complaints: [], silent: [],
  newest_epoch: null, now_ms: null, trouble: null, connected: false,
  corrections: [], seen: 0, left_out: 0,
};
const watchers = new Set();

/** Call `look` after every message; returns what ends that. */
export function watch(look) {
  watchers.add(look);
  return () => watchers.delete(look);
}

function merge(message) {
  const { corrections, whole, ...told } = message;
  for (const [name, value] of Object.entries(told)) {
    const isMap = name === "tasks" || name === "arcs" || name === "refused";
    state[name] = isMap && !whole ? { ...state[name], ...value } : value;
  }
  if (!corrections) return [];
  if (whole) state.corrections = [];
  const fresh = corrections.rows;
  state.corrections = [...fresh.toReversed(), ...state.corrections].slice(0, MOST_CORRECTIONS);
  state.seen = corrections.seen;
  state.left_out += corrections.left_out ?? 0;
  return whole ? [] : fresh;
}

let waiting = false;
let changes = [];

function redraw() {
  waiting = false;
  const fresh = changes;
  changes = [];
  for (const look of watchers) look(fresh);
}

function soon(fresh) {
  changes.push(...fresh);
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(redraw);
}

/** Ask the server; an answer that is an error becomes an exception with its text. */
export async function ask(path, options) {
  const response = await fetch(path, options);
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

export function query(keys, more = {}) {
  const fields = new URLSearchParams(Object.entries(more).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  for (const key of keys) fields.append("key", key);
  const text = fields.toString();
  return text ? `?${text}` : "";
}

export async function begin() {
  state.plan = await ask("/api/network");
  const events = new EventSource("/api/events");
  let wasLost = false;
  events.onopen = async () => {
    if (!wasLost) return;
    wasLost = false;
    const plan = await ask("/api/network"); // the network may have been started anew
    if (JSON.stringify(plan) !== JSON.stringify(state.plan)) location.reload();
  };
  events.onmessage = (event) => {
    state.connected = true;
    soon(merge(JSON.parse(event.data)));
  };
  events.onerror = () => {
    state.connected = false;
    wasLost = true;
    soon([]);
  };
}
