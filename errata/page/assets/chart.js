// A result's history as a chart: superseded values faint, present ones solid.
/* global uPlot */
import { h } from "./dom.js";
import { tupleAt } from "./corrections.js";
import { time } from "./format.js";

const EPOCH_MS = 50;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const at = (text) => Date.parse(`${text.replace(" ", "T")}Z`) / 1000;

/** The chart of a group over its windows, or of one tuple over time, with a choice of the field. */
export function historyChart(arc, about, revisions, measures, isSeries) {
  const choice = h("select", { id: "measure" }, measures.map((name) => h("option", { value: name }, name)));
  const place = h("div", { class: "chart", role: "img" });
  const draw = () => {
    const data = isSeries ? overWindows(revisions, choice.value) : overTime(revisions, choice.value);
    const corrected = data.before.filter((value) => value !== null).length;
    place.setAttribute("aria-label", `${choice.value} of ${arc}: ${data.x.length} points, ${corrected} of them corrected; the table below has the values`);
    place.dataset.corrected = corrected;
    place.replaceChildren();
    plot(place, data, choice.value, isSeries, (row) => {
      const line = data.lines[row];
      if (line?.key) location.hash = tupleAt("why", arc, line.key);
    });
  };
  choice.addEventListener("change", draw);
  requestAnimationFrame(draw); // once it has a width
  return h("div", {}, h("label", { for: "measure" }, "value", choice), place);
}

const number = (text) => (text === null || text === undefined ? null : Number(text));

/** By window: the value that it had first, and the one that it has now. */
function overWindows(revisions, field) {
  const windows = new Map();
  for (const line of revisions) {
    const side = line.after ?? line.before;
    const known = windows.get(side.window_start) ?? { first: line.before ? number(line.before[field]) : null, line };
    if (known.first === null && !known.line.before) known.first = number(known.line.after?.[field]);
    known.now = line.after ? number(line.after[field]) : null;
    known.line = line;
    windows.set(side.window_start, known);
  }
  const rows = [...windows].sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    x: rows.map(([start]) => at(start)),
    now: rows.map(([, row]) => row.now),
    before: rows.map(([, row]) => (row.first !== null && row.first !== row.now ? row.first : null)),
    lines: rows.map(([, row]) => row.line),
  };
}

/** By the time of a revision: the value before and after it. */
function overTime(revisions, field) {
  return {
    x: revisions.map((line) => (line.epoch * EPOCH_MS) / 1000),
    now: revisions.map((line) => number(line.after?.[field])),
    before: revisions.map((line) => (line.before && line.before[field] !== line.after?.[field] ? number(line.before[field]) : null)),
    lines: revisions,
  };
}

function plot(place, data, field, isSeries, choose) {
  const span = (data.x.at(-1) ?? 0) - (data.x[0] ?? 0);
  const day = 86_400;
  const tick = (seconds) => {
    const text = new Date(seconds * 1000).toISOString();
    return span > 3 * day ? text.slice(0, 10) : span > day ? `${text.slice(5, 10)} ${text.slice(11, 16)}` : text.slice(11, span > 300 ? 16 : 19);
  };
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 0.5 }, ticks: { stroke: colour("--line") } };
  const chart = new uPlot({
    width: Math.max(320, place.clientWidth), height: 260, tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    cursor: { points: { size: 9 } },
    axes: [
      { ...axis, space: 90, values: (_, splits) => splits.map(tick) },
      { ...axis, size: (_, values) => 24 + 7 * Math.max(0, ...(values ?? []).map((text) => String(text ?? "").length)) },
    ],
    series: [
      { label: isSeries ? "window" : "at", value: (_, seconds) => (seconds === null ? "" : time(seconds * 1000)) },
      { label: `${field} before`, stroke: colour("--old"), width: 0, paths: () => null, points: { show: true, size: 7, stroke: colour("--old"), fill: colour("--ground") } },
      { label: field, stroke: colour("--new"), width: 1.5, paths: isSeries ? undefined : uPlot.paths.stepped({ align: 1 }), points: { show: true, size: 5, fill: colour("--new") } },
    ],
  }, [data.x, data.before, data.now], place);
  chart.over.addEventListener("click", () => {
    if (chart.cursor.idx !== null && chart.cursor.idx !== undefined) choose(chart.cursor.idx);
  });
  new ResizeObserver(() => {
    if (place.clientWidth) chart.setSize({ width: Math.max(320, place.clientWidth), height: 260 });
  }).observe(place);
}
