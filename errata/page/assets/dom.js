// Builds elements. Values become text only: nothing here, or anywhere on the page, parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** An element of HTML; children are elements or text. */
export const h = (tag, props, ...children) => filled(document.createElement(tag), props, children);

/** An element of SVG. */
export const s = (tag, props, ...children) => filled(document.createElementNS(SVG, tag), props, children);

/** A value of a record: isolated, so that its direction can't change what is around it. */
export const value = (text, kind = "") =>
  text === null || text === undefined ? h("span", { class: "faint" }, "null") : h("bdi", { class: kind || undefined }, text);

/** A table; each row is a list of cells, or a `tr`. */
export function table(caption, heads, rows, { numbers = [] } = {}) {
  const head = heads.map((name, at) => h("th", { scope: "col", class: numbers.includes(at) ? "number" : undefined }, name));
  const body = rows.map((row) => (row instanceof Element ? row
    : h("tr", {}, row.map((cell, at) => h("td", { class: numbers.includes(at) ? "number" : undefined }, cell)))));
  return h("table", {}, caption ? h("caption", {}, caption) : null, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
}
