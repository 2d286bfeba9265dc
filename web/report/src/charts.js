// Charts in SVG: sizes through the steps, a treemap of scopes, histograms of weights, ranges.

import { hierarchy, treemap, treemapSquarify } from "d3-hierarchy";
import { scaleLinear } from "d3-scale";
import { curveStepAfter, line } from "d3-shape";

import { bytes, count, percent, real, whole } from "./amounts.js";
import { bar, choice, drawn, el, number, replace, short, svg, table } from "./dom.js";
import { section } from "./sections.js";

const axis = (scale, width, left, format) => scale.ticks(4).map((tick) => [
  svg("line", { class: "grid", x1: left, x2: width, y1: scale(tick), y2: scale(tick) }),
  svg("text", { class: "tick", x: left - 6, y: scale(tick) + 4, "text-anchor": "end" }, format(tick)),
]);

export function sizes(target) {
  const { source, steps } = target.report;
  const names = ["frozen source", ...steps.map((s) => s.name)];
  const series = [
    { title: "bytes", kind: "first", values: [source.bytes, ...steps.map((s) => s.bytes)] },
    { title: "compressed", kind: "second", values: target.compressed },
  ].filter((s) => s.values.length === names.length);
  const box = el("div", { class: "chart" });
  drawn(box, (width) => {
    const height = 220;
    const left = 62;
    const x = scaleLinear([0, Math.max(1, names.length - 1)], [left + 4, width - 12]);
    const y = scaleLinear([0, Math.max(...series.flatMap((s) => s.values))], [height - 26, 10]).nice(4);
    const every = Math.ceil(names.length / Math.max(2, Math.floor((width - left) / 40)));
    replace(box, svg("svg", { width, height, role: "img", "data-chart": "sizes",
      "aria-label": `Size after each step: from ${bytes(series[0].values[0])} to ${bytes(series[0].values.at(-1))}. The table below has all figures.` },
      axis(y, width, left, bytes),
      names.map((_, at) => at % every ? null : svg("text", { class: "tick", x: x(at), y: height - 6, "text-anchor": "middle" }, at)),
      series.map((s) => [
        svg("path", { class: `line ${s.kind}`, d: line((_, at) => x(at), (v) => y(v)).curve(curveStepAfter)(s.values) }),
        s.values.map((v, at) => svg("circle", { class: `dot ${s.kind}`, cx: x(at), cy: y(v), r: 4 },
          svg("title", null, `${at} ${names[at]}: ${bytes(v)}, ${s.title}`))),
      ])));
  });
  return [el("p", { class: "legend", "aria-hidden": "true" }, series.map((s) => el("span", { class: `key ${s.kind}` }, s.title)),
    el("span", { class: "quiet" }, "by step; 0 is the frozen source")), box];
}

// A part of less than this share of the whole is one tile, whatever is in it.
const LEAST = 0.02;
const DEEPEST = 7;
const MOST_TILES = 800;

const MEASURES = [
  { value: "parameters", title: "parameters", format: count },
  { value: "bytes", title: "bytes of constants", format: bytes },
  { value: "flops", title: "FLOPs of one run", format: count },
];

// Which part of the whole each scope has; a scope is opened by a click, or in the table.
export function scopes(target, show) {
  const state = { graph: "model", measure: "parameters", box: null };
  const place = el("div", { class: "chart" });
  const crumbs = el("nav", { "aria-label": "Open scope", class: "crumbs" });
  const listed = el("div");
  const tools = el("div", { class: "tools" });
  const root = () => target.graphs[state.graph].tree.root;
  const measure = () => MEASURES.find((m) => m.value === state.measure);
  const open = (box) => {
    state.box = box;
    draw();
  };
  const name = (box) => short(box.label || "all", 40);
  const redraw = drawn(place, (width) => {
    const height = Math.round(Math.min(460, Math.max(260, width * 0.5)));
    const box = state.box || root();
    const least = box[state.measure] * LEAST;
    const inner = (b) => (b === box || (b.isScope && b.depth - box.depth < DEEPEST && b[state.measure] > least) ? b.children : null);
    const top = hierarchy(box, inner).sum((b) => (inner(b) ? 0 : b[state.measure])).sort((a, b) => b.value - a.value);
    treemap().size([width, height]).tile(treemapSquarify).paddingInner(2).paddingTop((n) => (n.depth && n.children ? 18 : 0)).round(true)(top);
    const drawnBoxes = top.descendants().slice(1).filter((n) => n.x1 - n.x0 > 1 && n.y1 - n.y0 > 1).slice(0, MOST_TILES);
    const shadeOf = (n) => {
      const path = n.ancestors();
      return (branch.children || []).indexOf(path.find((a) => a.parent === branch)) % 6;
    };
    let branch = top;
    while (branch.children && branch.children.length && branch.children[0].value > 0.9 * branch.value && branch.children[0].children) branch = branch.children[0];
    replace(place, svg("svg", { width, height, role: "img", "data-chart": "treemap",
      "aria-label": `Treemap of ${measure().title} by name scope. The table below has the figures.` },
      drawnBoxes.map((n) => {
        const wide = n.x1 - n.x0;
        const high = n.y1 - n.y0;
        const letters = Math.floor((wide - 8) / 7);
        const group = svg("g", { class: `tile ${n.children ? "group" : ""} shade${shadeOf(n)}`,
          transform: `translate(${n.x0},${n.y0})` },
          svg("rect", { width: wide, height: high, rx: 2 }, svg("title", null, `${name(n.data)}: ${measure().format(n.value)}`)),
          letters > 3 && high > 16 ? svg("text", { x: 5, y: 14 }, short(n.data.label, letters)) : null);
        group.addEventListener("click", () => (n.data.isScope ? open(n.data) : show(target.graphs[state.graph].names[n.data.at], state.graph)));
        return group;
      }),
      top.value ? null : svg("text", { x: 8, y: 24 }, "Nothing here has any.")));
  });
  function draw() {
    const box = state.box || root();
    const path = [];
    for (let at = box; at; at = at.parent) path.unshift(at);
    replace(crumbs, el("ol", null, path.map((b) => el("li", null, b === box ? el("span", { "aria-current": "true" }, name(b))
      : el("button", { type: "button", class: "link", onclick: () => open(b) }, name(b))))));
    const all = root()[state.measure] || 1;
    const rows = [...box.children].sort((a, b) => b[state.measure] - a[state.measure]).slice(0, 60);
    replace(listed, table(`What ${box.label ? name(box) : "the graph"} is made of`, ["scope or node", number("nodes"), number("parameters"), number("bytes"), number("FLOPs"), number("share")],
      rows.map((b) => [
        b.isScope ? el("button", { type: "button", class: "link", onclick: () => open(b) }, `${name(b)}/`)
          : el("button", { type: "button", class: "link", onclick: () => show(target.graphs[state.graph].names[b.at], state.graph) }, name(b)),
        whole(b.nodes), count(b.parameters), bytes(b.bytes), count(b.flops), bar(percent(b[state.measure] / all), b[state.measure] / all)]),
      { "data-chart": "scopes" }));
    redraw();
  }
  replace(tools,
    choice("Graph", [{ value: "model", title: "model" }, { value: "source", title: "source" }], "model", (v) => {
      state.graph = v;
      open(null);
    }),
    choice("Measure", MEASURES, "parameters", (v) => {
      state.measure = v;
      draw();
    }));
  const left = target.graphs.model.raw.left_out;
  if (left) return section("scopes", "Where parameters, bytes and FLOPs are", el("p", null, `Not told: ${left}.`));
  draw();
  return section("scopes", "Where parameters, bytes and FLOPs are", tools, crumbs, place,
    el("details", { open: true }, el("summary", null, "As a table"), listed));
}

// The spread of a constant's values; before and after on one scale where both are known.
export function histogram(spreads, width, label) {
  const height = 160;
  const left = 46;
  const low = Math.min(...spreads.map((s) => s.low));
  const high = Math.max(...spreads.map((s) => s.high));
  const x = scaleLinear([low, high > low ? high : low + 1], [left, width - 10]);
  const y = scaleLinear([0, Math.max(...spreads.map((s) => Math.max(...s.counts) / s.looked_at))], [height - 24, 8]);
  const bars = (s) => s.counts.map((n, at) => {
    const step = (s.high - s.low) / s.counts.length;
    const from = x(s.low + at * step);
    const to = s.high > s.low ? x(s.low + (at + 1) * step) : from + 4;
    const top = y(n / s.looked_at);
    return n ? svg("rect", { class: `bin ${s.kind}`, x: from, y: top, width: Math.max(1, to - from - 0.5), height: height - 24 - top },
      svg("title", null, `${real(s.low + at * step)} to ${real(s.low + (at + 1) * step)}: ${percent(n / s.looked_at)}`)) : null;
  });
  return svg("svg", { width, height, role: "img", "data-chart": "histogram", "aria-label": label },
    axis(y, width - 10, left, (v) => percent(v)),
    spreads.map((s) => svg("g", null, bars(s))),
    x.ticks(Math.max(2, Math.floor(width / 110))).map((tick) => svg("text", { class: "tick", x: x(tick), y: height - 6, "text-anchor": "middle" }, real(tick, 3))));
}

export function tensors(target, show) {
  const { source, model } = target.graphs;
  const names = [...new Set([...model.weights.keys(), ...source.weights.keys()])];
  const parts = [];
  if (names.length) {
    const box = el("div", { class: "chart" });
    const told = el("div");
    let chosen = names[0];
    const spreads = () => [
      { ...source.weights.get(target.history.sourceName(chosen)), title: "source", kind: "second" },
      { ...model.weights.get(chosen), title: "model", kind: "first" },
    ].filter((s) => s.counts);
    const redraw = drawn(box, (width) => replace(box, histogram(spreads(), width, `Histogram of the values of ${short(chosen)}. The table below has the figures.`)));
    const tell = () => {
      replace(told, el("p", { class: "legend", "aria-hidden": "true" }, spreads().map((s) => el("span", { class: `key ${s.kind}` }, s.title))),
        table("The values of this constant", ["graph", "type", number("elements"), number("least"), number("greatest"), number("zeros")],
          spreads().map((s) => [s.title, s.dtype, whole(s.elements), real(s.low), real(s.high), percent(s.zeros)])));
      redraw();
    };
    parts.push(el("h3", null, "Weights"), el("div", { class: "tools" },
      choice("Constant", names.map((n) => ({ value: n, title: short(n, 70) })), chosen, (v) => {
        chosen = v;
        tell();
      })), box, told);
    tell();
  } else parts.push(el("p", { class: "quiet" }, "There are no constants of 16 numbers or more."));
  if (target.ranges.size) parts.push(el("h3", null, "Ranges of activations"), ranges(target, show));
  return section("tensors", "Values of tensors", parts);
}

function ranges(target, show) {
  const all = [...target.ranges].map(([name, r]) => ({ name, ...r })).sort((a, b) => b.high - b.low - (a.high - a.low));
  const most = all.slice(0, 40);
  const low = Math.min(0, ...most.map((r) => r.low));
  const high = Math.max(0, ...most.map((r) => r.high));
  const span = (r) => {
    const filled = el("span", { class: "fill" });
    filled.style.marginLeft = `${((r.low - low) / (high - low || 1)) * 100}%`;
    filled.style.width = `${Math.max(0.5, ((r.high - r.low) / (high - low || 1)) * 100)}%`;
    return el("span", { class: "track wide", "aria-hidden": "true" }, filled);
  };
  return table(`The widest ${most.length} ranges of ${all.length}, as calibration measured them`, ["tensor", number("least"), number("greatest"), { title: "range" }],
    most.map((r) => [el("button", { type: "button", class: "link", onclick: () => show(r.name) }, short(r.name)), real(r.low), real(r.high), span(r)]), { "data-chart": "ranges" });
}
