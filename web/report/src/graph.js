// The graph: to pan, zoom, search and open scope by scope, with mouse, finger and keyboard.

import { select } from "d3-selection";
import { line, curveBasis } from "d3-shape";
import { zoom, zoomIdentity } from "d3-zoom";

import { bytes, count, whole } from "./amounts.js";
import { details } from "./details.js";
import { choice, el, newId, plain, replace, short, svg } from "./dom.js";
import { forget, laidOut } from "./layout.js";
import { scopeEdges } from "./model.js";
import { section } from "./sections.js";

const FOUND = 50;
const SMALLEST = 3;
const MAIN = 0.6;
const READABLE = 0.7;
const path = line((p) => p.x, (p) => p.y).curve(curveBasis);
const shade = (op) => [...op].reduce((sum, c) => (sum * 31 + c.codePointAt(0)) % 997, 7) % 8;

export class GraphView {
  constructor(target) {
    this.target = target;
    this.open = new Set();
    this.chosen = null;
    this.which = "model";
    this.build();
  }

  get graph() {
    return this.target.graphs[this.which];
  }

  build() {
    this.world = svg("g", { class: "world" });
    this.canvas = svg("svg", { class: "canvas", role: "group", "data-chart": "graph",
      "aria-label": "The graph. Arrow keys go from box to box, Enter opens a scope or shows a node, plus and minus zoom." },
      svg("defs", null, svg("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
        svg("path", { d: "M0 0L8 4L0 8z", class: "arrowhead" }))), this.world);
    this.zoom = zoom().scaleExtent([0.02, 4]).on("zoom", (event) => this.moved(event.transform));
    // Ctrl or a pinch zooms; the wheel alone scrolls the page, as readers expect of it.
    this.zoom.filter((event) => event.type !== "wheel" || event.ctrlKey || event.metaKey || this.canvas.classList.contains("active"));
    this.surface = select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("click", (event) => this.clicked(event));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("pointerdown", () => this.canvas.classList.add("active"));
    this.canvas.addEventListener("pointerleave", () => this.canvas.classList.remove("active"));
    this.panel = el("div", { class: "details", role: "region", "aria-label": "What is chosen", tabindex: 0 });
    this.status = el("p", { class: "status", role: "status" });
    this.results = el("ul", { class: "results" });
    const id = newId("search");
    this.search = el("input", { id, type: "search", autocomplete: "off", spellcheck: "false", placeholder: "conv1 or op:MatMul",
      oninput: () => this.find(this.search.value), onkeydown: (event) => this.searchKey(event) });
    const button = (title, act, label) => el("button", { type: "button", "aria-label": label, onclick: act }, title);
    this.tools = el("div", { class: "tools" },
      choice("Graph", ["model", "source"].map((value) => ({ value, title: this.target.titles[value] })), "model", (v) => this.use(v)),
      el("span", { class: "choice" }, el("label", { for: id }, "Search"), this.search),
      button("+", () => this.scale(1.4), "Zoom in"), button("\u2212", () => this.scale(1 / 1.4), "Zoom out"),
      button("Fit", () => this.fit()), button("Close all", () => this.closeAll()));
    this.element = section("graph", "Graph", this.tools, this.status, this.results,
      el("div", { class: "graphbox" }, el("div", { class: "stage" }, this.canvas), this.panel));
    new ResizeObserver(() => this.sized || this.fit(READABLE)).observe(this.canvas);
    this.use("model");
  }

  use(which) {
    this.which = which;
    this.open.clear();
    this.chosen = null;
    this.find("");
    const { left_out: left } = this.graph.raw;
    if (left) {
      replace(this.status, `The graph is not drawn: ${left}.`);
      replace(this.world);
      return;
    }
    scopeEdges(this.graph);
    forgetAll(this.graph.tree.root);
    this.openFirst();
    this.draw();
    this.fit(READABLE);
    this.tell();
  }

  // A scope that holds nearly all says nothing while it is closed.
  openFirst() {
    for (let box = this.graph.tree.root; box; ) {
      const main = box.children.find((child) => child.isScope && child.nodes > MAIN * this.graph.count);
      if (main) this.open.add(main);
      box = main;
    }
  }

  // The boxes that are shown, outer ones first, with their places in the world.
  boxes() {
    const found = [];
    const edges = [];
    const walk = (box, x, y) => {
      const placed = laidOut(box, this.open);
      for (const edge of placed.edges) edges.push({ edge, x, y });
      for (const item of placed.items) {
        const isOpen = item.box.isScope && this.open.has(item.box);
        found.push({ ...item, x: x + item.x, y: y + item.y, isOpen });
        if (isOpen) walk(item.box, x + item.x, y + item.y);
      }
    };
    walk(this.graph.tree.root, 0, 0);
    return { found, edges };
  }

  draw() {
    this.shown = this.boxes();
    this.paint();
  }

  // Only what is in sight, and around it, becomes elements.
  paint() {
    const { k, x, y } = this.transform || zoomIdentity;
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    const sight = { left: (-x - wide) / k, top: (-y - high) / k, right: (2 * wide - x) / k, bottom: (2 * high - y) / k };
    this.painted = { ...sight, k };
    const inSight = (b) => b.x < sight.right && b.y < sight.bottom && b.x + b.width > sight.left && b.y + b.height > sight.top
      && (b.height * k > SMALLEST || b.box === this.chosen);
    this.elements = new Map();
    const edges = this.shown.edges.filter(({ edge, x: dx, y: dy }) => {
      const from = edge.points[0];
      const to = edge.points[edge.points.length - 1];
      return dy + Math.min(from.y, to.y) < sight.bottom && dy + Math.max(from.y, to.y) > sight.top && dx < sight.right
        && (k > 0.08 || edge.count > 1);
    });
    const boxes = this.shown.found.filter(inSight);
    const opened = boxes.filter((b) => b.isOpen).map((b) => this.box(b));
    const closed = boxes.filter((b) => !b.isOpen).map((b) => this.box(b));
    replace(this.world, opened, edges.map((e) => this.edge(e)), closed);
    this.focusable();
  }

  edge({ edge, x, y }) {
    const drawnEdge = svg("path", { class: edge.isControl ? "edge control" : "edge", d: path(edge.points), transform: `translate(${x},${y})`,
      "marker-end": "url(#head)", "aria-hidden": "true" });
    drawnEdge.style.strokeWidth = Math.min(5, 1 + Math.log2(edge.count));
    const shape = edge.count === 1 && edge.output >= 0 ? this.graph.shapes(edge.node)[edge.output] : null;
    drawnEdge.append(svg("title", null, edge.count > 1 ? `${edge.count} edges` : edge.isControl ? "control" : shape || "a tensor"));
    return drawnEdge;
  }

  box(place) {
    const { box, x, y, width, height, isOpen } = place;
    const op = box.isScope ? "" : this.graph.op(box.at);
    const kind = box.isScope ? (isOpen ? "scope open" : "scope") : `node op${shade(op)}${op === "Const" ? " const" : ""}`;
    const label = box.isScope ? `scope ${short(box.label)}, ${whole(box.nodes)} nodes` : `${op} ${short(box.label)}`;
    const made = svg("g", { class: `box ${kind}${box === this.chosen ? " chosen" : ""}`, transform: `translate(${x},${y})`, role: "button", tabindex: -1,
      "aria-label": label, "aria-expanded": box.isScope ? String(isOpen) : null },
      svg("rect", { width, height, rx: box.isScope ? 6 : 14 }),
      svg("text", { x: isOpen ? 10 : width / 2, y: 17, "text-anchor": isOpen ? "start" : "middle", class: "label" }, short(box.label || "(no name)", 26)),
      isOpen ? null : svg("text", { x: width / 2, y: 32, "text-anchor": "middle", class: "under" },
        box.isScope ? `${whole(box.nodes)} nodes, ${bytes(box.bytes)}` : short(op, 24)));
    made.place = place;
    this.elements.set(box, made);
    return made;
  }

  focusable() {
    const first = this.elements.get(this.chosen) || this.elements.values().next().value;
    if (first) first.setAttribute("tabindex", "0");
  }

  clicked(event) {
    const hit = event.target.closest("g.box");
    if (hit) this.act(hit.place.box);
  }

  act(box) {
    if (box.isScope && this.chosen === box) this.toggle(box);
    else if (box.isScope && !this.open.has(box)) this.toggle(box);
    else this.choose(box);
  }

  toggle(box) {
    const isOpen = this.open.delete(box);
    if (!isOpen) this.open.add(box);
    const before = this.shown.found.find((place) => place.box === box);
    forget(box);
    this.chosen = box;
    this.shown = this.boxes();
    // What was touched stays where it was on the screen.
    const after = this.shown.found.find((place) => place.box === box);
    const { k } = this.transform;
    if (before && after) this.surface.call(this.zoom.translateBy, before.x - after.x, before.y - after.y);
    if (k) this.paint();
    this.tell();
    this.focus(box);
  }

  choose(box) {
    const last = this.elements.get(this.chosen);
    if (last) {
      last.classList.remove("chosen");
      last.setAttribute("tabindex", "-1");
    }
    this.chosen = box;
    const now = this.elements.get(box);
    if (now) now.classList.add("chosen");
    this.focusable();
    this.tell();
  }

  focus(box) {
    const found = this.elements.get(box);
    if (found) found.focus({ preventScroll: true });
  }

  closeAll() {
    this.open.clear();
    this.chosen = null;
    forgetAll(this.graph.tree.root);
    this.openFirst();
    this.draw();
    this.fit();
    this.tell();
  }

  tell() {
    replace(this.panel, details(this, this.chosen));
  }

  // Opens all around a node and goes there; of a tensor its node is meant.
  show(name, which = this.which) {
    if (which !== this.which) this.switchTo(which);
    const plainName = name.replace(/^\^/, "");
    let at = this.graph.at.get(plainName) ?? this.graph.at.get(plainName.replace(/:\d+$/, ""));
    if (at === undefined) {
      const other = this.which === "model" ? "source" : "model";
      at = this.target.graphs[other].at.get(plainName) ?? this.target.graphs[other].at.get(plainName.replace(/:\d+$/, ""));
      if (at === undefined) {
        replace(this.status, `${short(name)} is in neither graph: steps have renamed or removed it.`);
        return;
      }
      this.switchTo(other);
    }
    this.reveal(this.graph.tree.leaves[at]);
    this.element.scrollIntoView({ block: "start" });
  }

  switchTo(which) {
    this.use(which);
    this.tools.querySelector("select").selectedIndex = which === "model" ? 0 : 1;
  }

  reveal(box) {
    for (let at = box.parent; at && at.parent; at = at.parent) this.open.add(at);
    forget(box.parent);
    for (let at = box.parent; at; at = at.parent) at.layout = null;
    this.chosen = box;
    this.shown = this.boxes();
    const place = this.shown.found.find((p) => p.box === box);
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    const k = Math.max(this.transform ? this.transform.k : 1, 0.9);
    this.surface.call(this.zoom.transform, zoomIdentity.translate(wide / 2 - (place.x + place.width / 2) * k, high / 2 - (place.y + place.height / 2) * k).scale(k));
    this.paint();
    this.tell();
  }

  find(text) {
    const wanted = text.trim().toLowerCase();
    const found = [];
    let all = 0;
    if (wanted) {
      const byOp = wanted.startsWith("op:") ? wanted.slice(3) : null;
      for (let at = 0; at < this.graph.count; at += 1) {
        const hay = byOp === null ? this.graph.names[at] : this.graph.op(at);
        if (!hay.toLowerCase().includes(byOp ?? wanted)) continue;
        all += 1;
        if (found.length < FOUND) found.push(at);
      }
    }
    this.matches = found;
    replace(this.results, found.map((at) => el("li", null, el("button", { type: "button", class: "link", onclick: () => this.reveal(this.graph.tree.leaves[at]) },
      short(this.graph.names[at], 80)), ` ${plain(this.graph.op(at))}`)));
    replace(this.status, wanted ? `${whole(all)} of ${whole(this.graph.count)} nodes${all > FOUND ? `; the first ${FOUND} are listed` : ""}`
      : this.graph.raw.left_out ? "" : `${whole(this.graph.count)} nodes, ${count(this.graph.tree.root.parameters)} parameters`);
  }

  searchKey(event) {
    if (event.key !== "Enter" || !this.matches.length) return;
    event.preventDefault();
    this.reveal(this.graph.tree.leaves[this.matches[0]]);
  }

  key(event) {
    const box = this.chosen || this.graph.tree.root.children[0];
    if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
    const siblings = box.parent.children;
    const at = siblings.indexOf(box);
    const act = {
      ArrowRight: () => siblings[Math.min(at + 1, siblings.length - 1)],
      ArrowLeft: () => siblings[Math.max(at - 1, 0)],
      ArrowDown: () => (box.isScope && this.open.has(box) ? box.children[0] : siblings[Math.min(at + 1, siblings.length - 1)]),
      ArrowUp: () => (box.parent.parent ? box.parent : siblings[Math.max(at - 1, 0)]),
      Home: () => siblings[0],
      End: () => siblings[siblings.length - 1],
    }[event.key];
    if (act) {
      this.reveal(act());
      this.focus(this.chosen);
    } else if (event.key === "Enter" || event.key === " ") {
      if (box.isScope) this.toggle(box);
      else this.choose(box);
    } else if (event.key === "+" || event.key === "=") this.scale(1.4);
    else if (event.key === "-") this.scale(1 / 1.4);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }

  scale(by) {
    this.surface.call(this.zoom.scaleBy, by);
  }

  // All of it, or where that would be too small to read its beginning.
  fit(least = 0.05) {
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    if (!wide || !high || this.graph.raw.left_out) return;
    this.sized = true;
    const { width, height } = laidOut(this.graph.tree.root, this.open);
    const k = Math.max(least, Math.min(1.2, (wide - 24) / width, (high - 24) / height));
    this.surface.call(this.zoom.transform, zoomIdentity.translate((wide - width * k) / 2, Math.max(12, (high - height * k) / 2)).scale(k));
    this.paint();
  }

  moved(transform) {
    this.transform = transform;
    this.world.setAttribute("transform", `translate(${transform.x},${transform.y}) scale(${transform.k})`);
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    const seen = { left: -transform.x / transform.k, top: -transform.y / transform.k };
    const done = this.painted;
    if (!done || (seen.left >= done.left && seen.top >= done.top && seen.left + wide / transform.k <= done.right
      && seen.top + high / transform.k <= done.bottom && transform.k < done.k * 2 && transform.k > done.k / 2)) return;
    if (!this.waiting) this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const had = this.canvas.contains(document.activeElement);
      this.paint();
      if (had) this.focus(this.chosen);
    });
  }
}

function forgetAll(box) {
  box.layout = null;
  for (const child of box.children) if (child.isScope) forgetAll(child);
}
