// An arc: its content now or as of an epoch, and the history of one tuple or one group.
import { h, table, value } from "./dom.js";
import { duration, number, time } from "./format.js";
import { ask, query, state } from "./store.js";
import { changes, tupleLink } from "./corrections.js";
import { historyChart } from "./chart.js";

const NUMBERS = /^(int|long|float|double|decimal)/;
const EPOCH_MS = 50;

export function arcs({ watch }) {
  const list = h("div");
  watch(() => {
    const rows = Object.entries(state.plan.arcs).map(([name, arc]) => {
      const now = state.arcs[name] ?? {};
      return [
        h("a", { href: `#/arc/${encodeURIComponent(name)}` }, name), arc.is_source ? "source" : "box", value(arc.topic), arc.partitions,
        now.frontier == null ? "" : time(now.frontier * EPOCH_MS), now.lag_ms == null ? "" : duration(now.lag_ms),
        now.watermark_ms == null ? "" : time(now.watermark_ms), now.held_by ? value(now.held_by) : "",
      ];
    });
    list.replaceChildren(table("Those that have a topic; times are UTC", ["arc", "of a", "topic", "partitions", "complete up to", "lag", "watermark", "waits for"], rows, { numbers: [3] }));
  });
  return [h("h2", {}, "Arcs"), list];
}

export function arc({ name, fields }) {
  const about = state.plan.arcs[name];
  if (!about) return h("p", { class: "bad" }, "The network has no arc ", value(name), " that has a topic.");
  const keys = fields.getAll("key");
  const given = Object.fromEntries(keys.map((key) => [key.slice(0, key.indexOf("=")), key.slice(key.indexOf("=") + 1)]));
  const inputs = about.identity.map((field) => [field, h("input", { id: `key-${field}`, value: given[field] ?? "", spellcheck: "false", autocomplete: "off" })]);
  const asOf = h("input", { id: "as-of", value: fields.get("as_of") ?? "", placeholder: "now", inputmode: "numeric", "aria-describedby": "as-of-help" });
  const go = (event) => {
    event.preventDefault();
    const wanted = new URLSearchParams();
    for (const [field, input] of inputs) if (input.value !== "") wanted.append("key", `${field}=${input.value}`);
    if (asOf.value.trim()) wanted.set("as_of", epochOf(asOf.value.trim()));
    location.hash = `#/arc/${encodeURIComponent(name)}?${wanted}`;
  };
  const content = h("section", { "aria-label": "Content" }, h("p", { class: "faint" }, "reading"));
  const history = h("section", { "aria-label": "History" });
  showTable(content, name, about, keys, fields.get("as_of"));
  if (keys.length) showHistory(history, name, about, keys);
  return [
    h("h2", {}, value(name)),
    h("p", { class: "faint" }, `topic ${about.topic}, ${Object.entries(about.fields).map(([field, kind]) => `${field} ${kind}`).join(", ")}`),
    h("form", { class: "row", onsubmit: go },
      inputs.map(([field, input]) => h("label", { for: input.id }, field, input)),
      h("label", { for: "as-of" }, "as of (UTC time or epoch)", asOf), h("button", {}, "Show")),
    history, content,
  ];
}

/** An epoch's number, of a number or of a time. */
function epochOf(text) {
  if (/^-?\d+$/.test(text)) return text;
  const ms = Date.parse(/[zZ]|[+-]\d\d:?\d\d$/.test(text) ? text : `${text.replace(" ", "T")}Z`);
  return Number.isNaN(ms) ? text : String(Math.floor(ms / EPOCH_MS));
}

async function showTable(place, name, about, keys, asOf) {
  try {
    const found = await ask(`/arcs/${encodeURIComponent(name)}${query(keys, { as_of: asOf, limit: 500, values: "shown" })}`);
    const names = Object.keys(about.fields);
    const numbers = names.map((field, at) => (NUMBERS.test(about.fields[field]) ? at : -1)).filter((at) => at >= 0);
    const rows = found.tuples.map((row, at) => [
      ...names.map((field) => value(row[field], about.fields[field].startsWith("timestamp") ? "tight" : "")),
      tupleLink("arc", name, found.keys[at], "history", { class: "tight" }),
      about.is_source ? "" : tupleLink("why", name, found.keys[at], "why", { class: "tight" }),
    ]);
    const rest = found.count > found.tuples.length ? `the first ${number(found.tuples.length)} of ${number(found.count)}` : number(found.count);
    const at = found.at_ms === null ? "before the first epoch" : `after epoch ${found.epoch}, ${time(found.at_ms)} UTC`;
    const here = new URL(`/arcs/${encodeURIComponent(name)}${query(keys, { as_of: asOf })}`, location.href);
    place.replaceChildren(h("h3", {}, "Content"),
      h("div", { class: "scroll", tabindex: 0, "aria-label": "The tuples" }, table(`${rest} tuples ${at}`, [...names, "", ""], rows, { numbers })),
      h("p", { class: "faint" }, "For programs: ", h("a", { href: here.pathname + here.search }, "JSON"), ", and Arrow with format=arrow."));
  } catch (error) {
    place.replaceChildren(h("p", { class: "bad", role: "alert" }, value(error.message)));
  }
}

async function showHistory(place, name, about, keys) {
  try {
    const found = await ask(`/arcs/${encodeURIComponent(name)}/history${query(keys, { values: "shown" })}`);
    const { revisions } = found;
    const measures = Object.keys(about.fields).filter((field) => NUMBERS.test(about.fields[field]) && !about.identity.includes(field));
    const given = new Set(keys.map((key) => key.slice(0, key.indexOf("=")).replace(/^window$/, "window_start")));
    const isOne = about.identity.every((field) => given.has(field));
    const group = about.identity.filter((field) => field !== "window_start");
    const isSeries = !isOne && about.has_windows && group.every((field) => given.has(field));
    const parts = [h("h3", {}, isOne ? "History of this tuple" : "History of these tuples")];
    if (isOne && about.has_windows) {
      const wider = keys.filter((key) => !/^window(_start)?=/.test(key));
      parts.push(h("p", {}, h("a", { href: `#/arc/${encodeURIComponent(name)}${query(wider)}` }, "all windows of this group")));
    }
    if ((isOne || isSeries) && measures.length && revisions.length) parts.push(historyChart(name, about, revisions, measures, isSeries));
    const rows = revisions.slice(-200).reverse().map((line) => {
      const values = line.after ?? line.before;
      return [time(line.epoch * EPOCH_MS), line.op, isOne ? "" : value(about.identity.map((field) => values[field]).join(", ")),
        h("div", {}, changes(line.before, line.after, about.identity)),
        about.is_source ? "" : tupleLink("why", name, line.key, "why", { class: "tight" })];
    });
    const rest = found.count > rows.length ? `, the newest ${rows.length} of ${number(found.count)}` : "";
    parts.push(h("div", { class: "scroll", tabindex: 0, "aria-label": "The revisions" },
      table(`Revisions in the topic, newest first${rest}; compaction removes old ones`, ["at", "op", "tuple", "was and is", ""], rows)));
    place.replaceChildren(...parts);
  } catch (error) {
    place.replaceChildren(h("p", { class: "bad", role: "alert" }, value(error.message)));
  }
}
