// Corrections as they come: what a result was, what it is, how long its window had been closed.
import { h, table, value } from "./dom.js";
import { clock, duration, number, ways } from "./format.js";
import { state } from "./store.js";

const MOST_ROWS = 200;

/** A link to a view of one tuple, by its `FIELD=VALUE` texts; plain text if these are too long. */
export function tupleLink(view, arc, key, text, props = {}) {
  if (!key) return h("span", { class: "faint" }, text);
  return h("a", { href: tupleAt(view, arc, key), ...props }, text);
}

export const tupleAt = (view, arc, key) =>
  `#/${view}/${encodeURIComponent(arc)}?${new URLSearchParams(key.map((field) => ["key", field]))}`;

/** What changes from one side of a revision to the other. */
export function changes(before, after, identity) {
  const names = Object.keys(after ?? before ?? {}).filter((name) => !identity.includes(name));
  const changed = names.filter((name) => !before || !after || before[name] !== after[name]);
  return [after ? null : h("div", {}, "deleted"), ...changed.map((name) => h("div", {}, h("span", { class: "faint" }, `${name} `),
    before ? value(before[name], "old") : null, before && after ? " \u2192 " : null, after ? value(after[name], "new") : null))];
}

export const identityOf = (identity, values) =>
  identity.map((name, at) => [at ? ", " : "", h("span", { class: "faint" }, `${name} `), value(values[name])]);

export function corrections({ watch }) {
  const choice = h("select", { id: "of", onchange: () => refresh() }, h("option", { value: "" }, "all arcs"),
    Object.entries(state.plan.arcs).filter(([, arc]) => !arc.is_source).map(([name]) => h("option", { value: name }, name)));
  const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    const on = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", String(on));
    if (!on) refresh();
  } }, "Pause");
  const count = h("p", { class: "faint" });
  const list = h("div");
  let shown = null;
  const refresh = (fresh = []) => {
    if (pause.getAttribute("aria-pressed") === "true") return;
    const rows = state.corrections.filter((row) => !choice.value || row.arc === choice.value).slice(0, MOST_ROWS);
    const left = state.left_out ? `; ${number(state.left_out)} of them not listed, too many at once` : "";
    const text = state.seen ? `${number(state.seen)} corrections seen${left}; times are UTC` : "no correction seen yet";
    if (count.textContent !== text) count.textContent = text;
    if (shown && rows.length === shown.length && rows[0] === shown[0]) return;
    shown = rows;
    const heads = ["at", "arc", "result", "was and is", "window closed", "looked back for", ""];
    list.replaceChildren(rows.length ? table("", heads, rows.map((row) => line(row, fresh.includes(row)))) : h("p", {},
      "A correction changes a result that was final. It appears here as soon as its epoch is complete."));
  };
  watch(refresh);
  return [
    h("h2", {}, "Corrections"),
    h("form", { class: "row", onsubmit: (event) => event.preventDefault() }, h("label", { for: "of" }, "of", choice), pause),
    count, list,
  ];
}

function line(row, isFresh) {
  const values = row.after ?? row.before;
  const cost = ways(row.ways);
  const shared = cost && row.results > 1 ? ` for ${number(row.results)} results` : "";
  return h("tr", { class: isFresh ? "fresh" : undefined },
    h("td", { class: "tight" }, clock(row.at_ms)),
    h("td", { class: "tight" }, h("a", { href: `#/arc/${encodeURIComponent(row.arc)}` }, row.arc)),
    h("td", {}, tupleLink("arc", row.arc, row.key, identityOf(row.identity, values))),
    h("td", { class: "changes" }, row.op === "insert" ? h("span", { class: "faint" }, "new ") : null, changes(row.before, row.after, row.identity)),
    h("td", { class: "tight" }, row.age_ms === null ? "" : `${duration(Math.max(0, row.age_ms))} before`),
    h("td", {}, cost + shared),
    h("td", { class: "tight" }, tupleLink("why", row.arc, row.key, "why", { "aria-label": `why ${row.arc} was corrected` })));
}
