// The network: what holds back or is wrong, the graph with live figures, and its tasks.
import { h, s, table, value } from "./dom.js";
import { duration, number, rate, time } from "./format.js";
import { state } from "./store.js";

const LINE = 16, PAD = 10, CHARACTER = 6.6;
const STALE_MS = 1000;

// The policy of the server allows this one script for workers, and no HTML anywhere.
const SCRIPT = new URL("./layout.js", import.meta.url).href;
const LAYOUT = self.trustedTypes?.createPolicy("errata", { createScriptURL: () => SCRIPT }).createScriptURL("") ?? SCRIPT;

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}\u2026` : text);

export function overview({ watch }) {
  const told = h("ul", { class: "told", "aria-label": "What needs attention" });
  const drawing = h("div", { class: "drawing" }, h("p", { class: "faint" }, "drawing the network"));
  const tasks = h("div", { class: "scroll" });
  const chosen = { name: null };
  const nodes = new Map();
  draw(drawing, nodes, (name) => {
    chosen.name = chosen.name === name ? null : name;
    for (const [each, node] of nodes) node.group.classList.toggle("chosen", each === chosen.name);
    refresh();
  }, () => refresh());
  const refresh = () => {
    attention(told);
    const wrong = new Set(state.complaints.map((each) => each.task));
    for (const node of nodes.values()) node.refresh(wrong);
    tasks.replaceChildren(taskTable(chosen.name));
  };
  watch(refresh);
  return [
    told,
    h("div", { class: "columns" },
      h("section", { "aria-labelledby": "graph" }, h("h2", { id: "graph" }, "Boxes and arcs"), drawing),
      h("section", { "aria-labelledby": "tasks" }, h("h2", { id: "tasks" }, "Tasks"), tasks)),
  ];
}

function attention(list) {
  const lines = [
    ...state.complaints.map((each) => ["wrong", `${each.task}: ${each.reason}`]),
    ...Object.entries(state.tasks).filter(([, task]) => isHeld(task)).map(([name, task]) => ["held", `${name}: ${task.held}`]),
    ...state.holds.map((hold) => ["held", hold.told]),
    ...state.silent.map((note) => ["note", note]),
  ];
  const most = 8;
  const items = lines.slice(0, most).map(([kind, text]) => h("li", { class: kind }, value(text)));
  if (lines.length > most) items.push(h("li", {}, `and ${number(lines.length - most)} more; see errata status`));
  const text = JSON.stringify(lines);
  if (list.dataset.text !== text) {
    list.dataset.text = text;
    list.replaceChildren(...items);
  }
}

const isHeld = (task) => task.held && (task.held_since_ms === null || state.now_ms - task.held_since_ms > STALE_MS);

/** The tasks of a box's scope, or of a source. */
function tasksOf(node) {
  const scope = node.kind === "source" ? `ingest.${node.name}` : node.scope;
  return state.plan.tasks[scope] ?? state.plan.tasks[node.name] ?? [];
}

function taskTable(name) {
  const node = state.plan.nodes.find((each) => each.name === name);
  const names = node ? tasksOf(node) : Object.keys(state.tasks);
  const most = 200;
  const ordered = node ? names : [...names].sort((a, b) => rank(b) - rank(a) || (a < b ? -1 : 1));
  const rows = ordered.slice(0, most).map((each) => {
    const task = state.tasks[each];
    if (!task) return [value(each), "", "", "", "has not reported"];
    const wait = isHeld(task) ? value(task.held_by === each ? "itself" : task.held_by, "warn") : "";
    return [value(each), task.attempt, task.lag_ms === null ? "" : duration(task.lag_ms), rate(task.rate ?? 0), wait];
  });
  const rest = ordered.length > most ? `; the first ${most} of ${number(ordered.length)}` : "";
  const caption = node ? `of ${node.name}; choose it again for all` : `all ${number(names.length)}${rest}`;
  return table(caption, ["task", "attempt", "lag", "reads", "waits for"], rows, { numbers: [1, 2, 3] });
}

const rank = (name) => {
  const task = state.tasks[name];
  return task && isHeld(task) ? 2 : task?.held_by ? 1 : 0;
};

// ---------------------------------------------------------------- the drawing

async function draw(place, nodes, choose, then) {
  const network = state.plan;
  const sized = network.nodes.map((node) => {
    const texts = [node.name, ...node.about, "0,000,000/s  lag 00 s"];
    const width = Math.min(260, Math.max(...texts.map((text) => text.length)) * CHARACTER + 2 * PAD);
    return { name: node.name, width, height: LINE * (2 + node.about.length) + 2 * PAD - 4 };
  });
  const placed = await laidOut(sized, network.edges.filter((edge) => !edge.what));
  const least = { width: 760, height: 420 }; // small networks are not drawn large
  const home = { width: Math.max(placed.width, least.width), height: Math.max(placed.height, least.height) };
  Object.assign(home, { x: (placed.width - home.width) / 2, y: (placed.height - home.height) / 2 });
  const view = { ...home };
  const most = { width: 1800, height: 1200 }; // large ones are not drawn so small that nothing can be read
  const towards = (name) => {
    const { x, y } = placed.nodes[name];
    const [width, height] = [Math.min(view.width, most.width), Math.min(view.height, most.height)];
    Object.assign(view, { width, height, x: x - width / 2, y: y - height / 2 });
  };
  if (home.width > most.width || home.height > most.height) towards(network.nodes[0].name);
  const drawn = s("svg", { role: "group", "aria-label": "The network's graph", preserveAspectRatio: "xMidYMid meet" },
    s("defs", {}, s("marker", { id: "end", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
      s("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }))));
  const edges = network.edges.map((edge) => {
    const path = s("path", {
      class: edge.what ? "edge back" : "edge", "marker-end": "url(#end)",
      d: edge.what ? below(placed.nodes[edge.start], placed.nodes[edge.end]) : along(placed.edges.get(edge)),
    }, s("title", {}, edge.what ? `${edge.end} ${edge.what} ${edge.start}` : `${edge.start} to ${edge.end}`));
    drawn.append(path);
    return [edge, path];
  });
  network.nodes.forEach((node, at) => {
    const own = drawNode(node, placed.nodes[node.name], sized[at], choose, edges.filter(([edge]) => edge.start === node.name && !edge.what));
    nodes.set(node.name, own);
    drawn.append(own.group);
  });
  const look = () => drawn.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
  const whole = () => Object.assign(view, home);
  const zoom = (by, x = view.x + view.width / 2, y = view.y + view.height / 2) => {
    Object.assign(view, { x: x - (x - view.x) * by, y: y - (y - view.y) * by, width: view.width * by, height: view.height * by });
    look();
  };
  const button = (text, label, act) => h("button", { type: "button", "aria-label": label, onclick: act }, text);
  const find = h("input", {
    type: "search", placeholder: "find a box", "aria-label": "Find a box", list: "boxes", size: 14,
    onchange: () => {
      if (!nodes.has(find.value)) return;
      towards(find.value);
      look();
      nodes.get(find.value).group.focus();
    },
  });
  place.replaceChildren(drawn, h("datalist", { id: "boxes" }, network.nodes.map(({ name }) => h("option", { value: name }))), h("div", { class: "tools" },
    find,
    button("+", "Larger", () => zoom(0.8)), button("\u2212", "Smaller", () => zoom(1.25)),
    button("all", "The whole graph", () => { whole(); look(); })));
  moveable(drawn, view, look, zoom);
  look();
  then();
}

function laidOut(nodes, edges) {
  const worker = new Worker(LAYOUT, { type: "module" });
  return new Promise((done) => {
    worker.onmessage = ({ data }) => {
      worker.terminate();
      done({ ...data, edges: new Map(edges.map((edge, at) => [edge, data.edges[at]])) });
    };
    worker.postMessage({ nodes, edges: edges.map(({ start, end }) => ({ start, end })) });
  });
}

/** A line through some points. */
const along = ([first, ...rest]) => `M${first.x} ${first.y} ${rest.map((point) => `L${point.x} ${point.y}`).join(" ")}`;

/** A curve below two boxes, from a connection point to the box that looks back. */
function below(one, other) {
  const isSame = one.x === other.x && one.y === other.y;
  const [x, toX] = isSame ? [one.x + 16, one.x - 16] : [one.x, other.x];
  const [y, toY] = [one.y + one.height / 2, other.y + other.height / 2];
  const deep = Math.max(y, toY) + 26;
  return `M${x} ${y} C${x} ${deep} ${toX} ${deep} ${toX} ${toY}`;
}

function drawNode(node, at, size, choose, edges) {
  const live = s("text", { class: "live", x: PAD, y: PAD + LINE * (1 + node.about.length) + 12 });
  const texts = [node.name, ...node.about].map((text, line) =>
    s("text", { class: line ? "about" : "", x: PAD, y: PAD + LINE * line + 10 }, short(text, 38)));
  const title = s("title");
  const group = s("g", {
    class: `node ${node.kind}${node.is_kept ? " kept" : ""}`, tabindex: 0, role: "button",
    transform: `translate(${at.x - size.width / 2} ${at.y - size.height / 2})`,
    onclick: () => choose(node.name), onfocus: () => label(), onmouseenter: () => label(),
    onkeydown: (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        choose(node.name);
      }
    },
  }, title, s("rect", { width: size.width, height: size.height, rx: 5 }), texts, live);
  const names = tasksOf(node);
  let shown = "";
  const refresh = (wrongTasks) => {
    const arc = state.arcs[node.name];
    const tasks = names.map((name) => state.tasks[name]).filter(Boolean);
    const reads = node.kind === "source" ? tasks.reduce((sum, task) => sum + (task.rate ?? 0), 0) : arc?.rate ?? 0;
    const lag = arc?.lag_ms ?? null;
    const held = tasks.some(isHeld);
    const wrong = names.some((name) => wrongTasks.has(name));
    const text = [rate(reads), lag > 1000 ? `lag ${duration(lag)}` : ""].filter(Boolean).join("  ");
    const look = `${text}|${held}|${wrong}|${reads > 0}`;
    if (look === shown) return;
    shown = look;
    live.textContent = text;
    group.classList.toggle("behind", held);
    group.classList.toggle("wrong", wrong);
    for (const [, path] of edges) path.classList.toggle("busy", reads > 0);
  };
  /** Tells all that is known of the box, once somebody looks at it. */
  const label = () => {
    const arc = state.arcs[node.name];
    const about = [...node.about, node.kind, node.scope && `scope ${node.scope}`,
      arc?.frontier != null && `complete up to ${time(arc.frontier * 50)}`,
      arc?.watermark_ms != null && `watermark ${time(arc.watermark_ms)}`,
      group.classList.contains("behind") && "held back", group.classList.contains("wrong") && "wrong", live.textContent];
    const text = `${node.name}: ${about.filter(Boolean).join(", ")}`;
    title.textContent = text;
    group.setAttribute("aria-label", text);
  };
  label();
  return { group, refresh };
}

/** Lets the drawing be moved and zoomed, with a pointer, the wheel or the arrow keys. */
function moveable(drawn, view, look, zoom) {
  let from = null;
  const scale = () => Math.max(view.width / drawn.clientWidth, view.height / drawn.clientHeight);
  drawn.addEventListener("pointerdown", (event) => {
    from = { x: event.clientX, y: event.clientY };
  });
  drawn.addEventListener("pointermove", (event) => {
    if (!from || !event.buttons) return;
    view.x -= (event.clientX - from.x) * scale();
    view.y -= (event.clientY - from.y) * scale();
    from = { x: event.clientX, y: event.clientY };
    look();
  });
  drawn.addEventListener("wheel", (event) => {
    event.preventDefault();
    const area = drawn.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.15 : 0.87,
      view.x + ((event.clientX - area.left) / area.width) * view.width,
      view.y + ((event.clientY - area.top) / area.height) * view.height);
  }, { passive: false });
  drawn.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    view.x += step[0] * view.width * 0.08;
    view.y += step[1] * view.height * 0.08;
    look();
  });
}
