// Times, durations and numbers as people read them. Times are ms since 1970, shown in UTC.

export function time(ms) {
  if (ms === null || ms === undefined) return "";
  const at = new Date(ms);
  return Number.isNaN(at.getTime()) ? String(ms) : at.toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");
}

export const clock = (ms) => time(ms).slice(11, 19);

const UNITS = [["y", 31_557_600_000], ["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1_000]];

export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const at = UNITS.findIndex(([, size]) => ms >= size);
  const [name, size] = UNITS[at];
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  return `${Math.floor(ms / size)} ${name}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

export const number = (n) => (n === null || n === undefined ? "" : n.toLocaleString("en"));

export const rate = (n) => (n >= 10 ? `${number(Math.round(n))}/s` : n > 0 ? `${n.toFixed(1)}/s` : "");

const WAYS = {
  replayed: (s) => `tuple${s} replayed`, fetched: (s) => `result${s} fetched`, kept_back: (s) => `revision${s} kept back`,
};

/** What a box looked back for. */
export const ways = (counts) =>
  Object.entries(counts ?? {}).map(([what, count]) => `${number(count)} ${WAYS[what](count === 1 ? "" : "s")}`).join(", ");
