// Why a result has its values: each revision with the records that caused it.
import { h, table, value } from "./dom.js";
import { time, ways } from "./format.js";
import { ask, query, state } from "./store.js";
import { changes, identityOf } from "./corrections.js";

const EPOCH_MS = 50;

export function why({ name, fields }) {
  const keys = fields.getAll("key");
  const place = h("div", { "aria-busy": "true" }, h("p", { class: "faint" }, "recomputing from what the sources held; this can take a while where they are large"));
  tell(place, name, keys);
  return [
    h("h2", {}, "Why ", value(name), " has this value"),
    h("p", {}, h("a", { href: `#/arc/${encodeURIComponent(name)}${query(keys)}` }, "its history"), h("span", { class: "faint" }, ` ${keys.join(", ")}`)),
    place,
  ];
}

async function tell(place, name, keys) {
  try {
    const told = await ask(`/arcs/${encodeURIComponent(name)}/why${query(keys, { inputs: "yes", values: "shown" })}`);
    place.replaceChildren(...told.map(article));
  } catch (error) {
    place.replaceChildren(h("p", { class: "bad", role: "alert" }, value(error.message)));
  }
  place.removeAttribute("aria-busy");
}

const identity = (arc) => state.plan.arcs[arc]?.identity ?? [];

function article(told) {
  const own = identity(told.arc);
  const parts = [
    h("h3", {}, `${time(told.epoch * EPOCH_MS)} UTC: ${told.op} `, identityOf(own, told.after ?? told.before)),
    h("div", {}, changes(told.before, told.after, own)),
  ];
  if (!told.is_explained) return h("article", {}, parts, h("p", { class: "warn" }, value(told.reason)));
  if (told.causes.length) {
    parts.push(h("h3", {}, told.causes_are === "enough" ? "Because of these, which suffice; others would do, too" : "Because of"),
      records(told.causes));
  }
  if (told.not_tried) parts.push(h("p", {}, `Perhaps of ${told.not_tried} more, too many to try each.`));
  if (told.watermark) {
    const [from, to] = [told.watermark.before, told.watermark.after].map((ms) => (ms === null ? "none" : `${time(ms)} UTC`));
    parts.push(h("h3", {}, "Because the watermark passed it"), h("p", {}, `from ${from} to ${to}`));
    if (told.moved_by.length) parts.push(records(told.moved_by));
  }
  if (told.between.length) {
    parts.push(h("h3", {}, "By way of"), table("", ["arc", "tuple", "was and is"], told.between.map((line) =>
      [line.arc, identityOf(identity(line.arc), line.after ?? line.before), changes(line.before, line.after, identity(line.arc))])));
  }
  const boxes = Object.entries(told.boxes).map(([box, counts]) => `${box}: ${ways(counts)}`);
  if (boxes.length) parts.push(h("p", { class: "faint" }, `Looked back: ${boxes.join("; ")}`));
  for (const [source, sides] of Object.entries(told.inputs ?? {})) {
    for (const side of ["before", "after"]) {
      const rows = sides[side];
      if (!rows.length) continue;
      const names = Object.keys(rows[0]);
      parts.push(h("details", {}, h("summary", {}, `Made of ${rows.length} tuples of ${source} ${side}`),
        h("div", { class: "scroll" }, table("", names, rows.slice(0, 500).map((row) => names.map((field) => value(row[field])))))));
    }
  }
  return h("article", {}, parts);
}

function records(lines) {
  return table("", ["source", "op", "tuple", "was and is", "record"], lines.map((line) => [
    line.source, line.op, identityOf(identity(line.source), line.after ?? line.before),
    changes(line.before, line.after, identity(line.source)),
    line.topic === null ? h("span", { class: "faint" }, "no longer in the topic")
      : `${line.topic}, partition ${line.partition}, offset ${line.offset}, written ${time(line.time_ms)}`,
  ]));
}
