// Dead letters: counted by reason, with their bytes; one can be edited and sent again.
import { h, table, value } from "./dom.js";
import { number, time } from "./format.js";
import { ask, state } from "./store.js";

export function letters({ fields, watch }) {
  const place = h("div", {}, h("p", { class: "faint" }, "reading"));
  const text = h("input", { id: "text", type: "search", value: fields.get("text") ?? "" });
  const to = (wishes) => `#/letters?${new URLSearchParams(Object.entries(wishes).filter(([, wish]) => wish))}`;
  const wishes = { reason: fields.get("reason"), text: fields.get("text"), all: fields.get("all") };
  let counted = null;
  const read = async () => {
    try {
      const asked = new URLSearchParams(Object.entries(wishes).filter(([, wish]) => wish));
      const found = await ask(`/dead-letters?${asked}`);
      place.replaceChildren(...list(found, wishes, to, read));
    } catch (error) {
      place.replaceChildren(h("p", { class: "bad", role: "alert" }, value(error.message)));
    }
  };
  watch(() => {
    const now = Object.values(state.refused).reduce((sum, count) => sum + count, 0);
    if (now !== counted) {
      counted = now;
      read();
    }
  });
  return [
    h("h2", {}, "Dead letters"),
    h("form", { class: "row", onsubmit: (event) => {
      event.preventDefault();
      location.hash = to({ ...wishes, text: text.value });
    } }, h("label", { for: "text" }, "contains", text), h("button", {}, "Find")),
    place,
  ];
}

function list(found, wishes, to, again) {
  const hidden = found.acknowledged && wishes.all !== "yes"
    ? h("p", {}, h("a", { href: to({ ...wishes, all: "yes" }) }, `${number(found.acknowledged)} acknowledged ones`)) : null;
  if (!found.count) return [h("p", {}, found.acknowledged ? "Nothing is open." : "Nothing was refused."), ...(hidden ? [hidden] : [])];
  const chips = [["", found.count], ...Object.entries(found.reasons)].map(([reason, count]) =>
    h("a", { href: to({ ...wishes, reason }), "aria-current": (wishes.reason ?? "") === reason ? "true" : undefined },
      reason ? value(reason) : "all", ` (${number(count)})`));
  const rows = found.letters.map((letter) => [
    h("a", { href: `#/letter/${encodeURIComponent(letter.place)}` }, value(letter.place)), value(letter.reason), value(letter.detail),
    time(letter.written_ms), value(letter.key), value(letter.value),
  ]);
  const rest = found.matching > rows.length ? `the newest ${rows.length} of ${number(found.matching)}` : `${rows.length}`;
  const told = h("span", { role: "status" });
  const acknowledge = async () => {
    try {
      const asked = new URLSearchParams(Object.entries({ reason: wishes.reason, text: wishes.text }).filter(([, wish]) => wish));
      await ask(`/dead-letters/acknowledge?${asked}`, { method: "POST", headers: { "x-errata": "1" } });
      again();
    } catch (error) {
      told.textContent = error.message;
    }
  };
  const button = state.plan.allows_writes && found.matching
    ? h("p", {}, h("button", { type: "button", onclick: acknowledge }, `Acknowledge ${number(found.matching)}`), " ", told) : null;
  return [
    h("p", { class: "chips" }, chips), ...(hidden ? [hidden] : []), ...(button ? [button] : []),
    h("div", { class: "scroll", tabindex: 0, "aria-label": "The dead letters" },
      table(`${rest}, newest first; times are UTC`, ["place", "reason", "detail", "written", "key", "value"], rows)),
  ];
}

export function letter({ name }) {
  const place = h("div", {}, h("p", { class: "faint" }, "reading"));
  show(place, name);
  return [h("h2", {}, "Dead letter ", value(name)), h("p", {}, h("a", { href: "#/letters" }, "all dead letters")), place];
}

async function show(place, name) {
  let found;
  try {
    found = await ask(`/dead-letters/${encodeURIComponent(name)}`);
  } catch (error) {
    place.replaceChildren(h("p", { class: "bad", role: "alert" }, value(error.message)));
    return;
  }
  const facts = [["reason", found.reason], ["detail", found.detail], ["task", found.task], ["written", `${time(found.written_ms)} UTC`]];
  const parts = [table("", ["", ""], facts.map(([what, text]) => [what, value(text)]))];
  for (const side of ["key", "value"]) parts.push(h("h3", {}, side), content(found, side));
  if (found.is_of_box) parts.push(h("p", {}, "A box refused this tuple. Correct the record of the source that it comes from: errata revise."));
  else if (state.plan.allows_writes) parts.push(editor(found));
  else parts.push(h("p", { class: "faint" }, "The page is read-only; with --allow-writes a record can be edited and sent again."));
  place.replaceChildren(...parts);
}

const bytes = (base64) => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
const base64 = (content) => btoa(Array.from(content, (byte) => String.fromCharCode(byte)).join(""));

/** The bytes as text; null if they are not text. */
function decoded(content) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return null;
  }
}

/** Characters without a shape of their own as escapes. */
const visible = (text) => text.replace(/[^\P{C}\n\t]/gu, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);

function content(found, side) {
  if (found[`${side}_bytes`] === null) return h("p", { class: "faint" }, "none");
  const raw = bytes(found[`${side}_bytes`]);
  const text = decoded(raw);
  const most = 20_000;
  const hex = Array.from(raw.slice(0, 4_096), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const plain = found[`${side}_decoded`];
  const parts = [h("p", { class: "faint" }, `${number(raw.length)} bytes`)];
  if (text !== null) parts.push(h("pre", {}, h("bdi", {}, visible(text.slice(0, most))), text.length > most ? `\n${number(text.length - most)} more characters` : ""));
  if (plain !== null && typeof plain === "object") parts.push(h("details", {}, h("summary", {}, "decoded"), h("pre", {}, visible(JSON.stringify(plain, null, 1)).slice(0, most))));
  parts.push(h("details", { open: text === null }, h("summary", {}, "bytes"), h("pre", {}, hex + (raw.length > 4_096 ? " \u2026" : ""))));
  return h("div", {}, parts);
}

function editor(found) {
  const raw = found.value_bytes === null ? null : bytes(found.value_bytes);
  const text = raw && decoded(raw);
  const isText = text !== null && text !== undefined && raw.length < 200_000;
  const area = h("textarea", { id: "edited", spellcheck: "false" });
  area.value = isText ? text : found.value_bytes ?? "";
  const told = h("p", { role: "status" });
  const send = async (event) => {
    event.preventDefault();
    const wish = { places: [found.place] };
    if (raw && area.value !== (isText ? text : found.value_bytes)) {
      wish.value_base64 = isText ? base64(new TextEncoder().encode(area.value)) : area.value.trim();
    }
    try {
      const [sent] = await ask("/dead-letters/resend", {
        method: "POST", headers: { "content-type": "application/json", "x-errata": "1" }, body: JSON.stringify(wish),
      });
      told.className = "good";
      told.textContent = `sent${wish.value_base64 === undefined ? " verbatim" : ", edited"}; its offset is ${sent.sent_as}. If it is refused again, it becomes a new dead letter.`;
    } catch (error) {
      told.className = "bad";
      told.textContent = error.message;
    }
  };
  return h("form", { onsubmit: send }, h("h3", {}, "Send again"),
    raw ? h("label", { for: "edited" }, isText ? "value" : "value as base64: it is not text", area) : null, h("button", {}, "Send"), told);
}
