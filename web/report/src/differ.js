// What two graphs differ in: the page of a comparison, which has no build.

import { change, real, whole } from "./amounts.js";
import { choice, el, newId, number, replace, short, table } from "./dom.js";
import { GraphView } from "./graph.js";
import { Target } from "./model.js";
import { section } from "./sections.js";

const MOST = 200;
export const DIFFER_TITLES = { overview: "Overview", differences: "Nodes", graph: "Graph", ops: "Ops", outputs: "Outputs" };
const KINDS = [{ value: "", title: "all" }, { value: "added", title: "added" }, { value: "removed", title: "removed" },
  { value: "changed", title: "changed" }, { value: "renamed", title: "renamed" }];

export function differing(data) {
  const found = data.difference;
  const renamed = Object.entries(found.renamed);
  const changes = found.differences.map((d) => [d.kind, d.name, d.detail, d.before, d.after, d.largest]);
  const target = new Target({ name: data.recipe, report: {},
    nodes: { graphs: data.graphs, steps: [{ name: "the difference", changes, renamed, left_out: 0 }] } });
  target.titles = { model: "second", source: "first", history: "What it differs in" };
  const view = new GraphView(target);
  window.mobileprep = { view, target };
  return [overview(found, renamed.length), differences(found, renamed, view), view.element, ops(data.ops), outputs(found)];
}

const group = (kind) => (kind === "added" || kind === "removed" || kind === "renamed" ? kind : "changed");

function overview(found, renamed) {
  const names = (kind) => new Set(found.differences.filter((d) => group(d.kind) === kind).map((d) => d.name)).size;
  const rows = [["nodes of the first", found.nodes_a], ["nodes of the second", found.nodes_b], ["matched", found.matched],
    ["matched under another name", renamed], ["added", found.counts.added], ["removed", found.counts.removed], ["changed", found.counts.changed]];
  return section("overview", found.equal ? "Nothing differs" : "They differ",
    el("p", null, "First: ", el("strong", null, found.a)), el("p", null, "Second: ", el("strong", null, found.b)),
    table("How many nodes", ["", number("nodes")], rows.map(([title, n]) => [title, whole(n)]), { "data-chart": "counts" }),
    names("changed") < found.counts.changed ? el("p", { class: "quiet" }, `The page lists the first ${whole(found.differences.length)} differences.`) : null);
}

// All that differs, by any part of a name, an op or what became of it.
function differences(found, renamed, view) {
  const all = [...found.differences, ...renamed.map(([before, after]) => ({ kind: "renamed", name: after, detail: "", before, after, largest: null }))];
  const hay = all.map((d) => [d.name, d.kind, d.detail, d.before, d.after].join("\n").toLowerCase());
  const id = newId("search");
  const status = el("p", { role: "status", class: "status" });
  const listed = el("div");
  const state = { kind: "", text: "" };
  const draw = () => {
    const wanted = state.text.trim().toLowerCase();
    const chosen = all.filter((d, at) => (!state.kind || group(d.kind) === state.kind) && hay[at].includes(wanted));
    replace(status, `${whole(chosen.length)} of ${whole(all.length)}${chosen.length > MOST ? `; the first ${MOST} are listed` : ""}`);
    replace(listed, table("What differs, by the names of the second graph, and of the first where it alone has the node",
      ["node", "difference", "first", "second", number("largest difference")],
      chosen.slice(0, MOST).map((d) => [
        el("button", { type: "button", class: "link", onclick: () => view.show(d.name, d.kind === "removed" ? "source" : "model") }, short(d.name || "(the graph)", 80)),
        `${d.kind} ${short(d.detail)}`.trim(), short(d.before, 120), short(d.after, 120), d.largest === null ? "-" : real(d.largest, 3)]),
      { "data-chart": "differences" }));
  };
  draw();
  return section("differences", "What differs", el("div", { class: "tools" },
    choice("Kind", KINDS, "", (kind) => {
      state.kind = kind;
      draw();
    }),
    el("span", { class: "choice" }, el("label", { for: id }, "Find a difference"),
      el("input", { id, type: "search", autocomplete: "off", spellcheck: "false", oninput: (event) => {
        state.text = event.target.value;
        draw();
      } }))), status, listed);
}

function ops([was, is]) {
  const before = new Map(was);
  const after = new Map(is);
  const names = [...new Set([...before.keys(), ...after.keys()])].sort();
  const apart = (name) => Math.abs((before.get(name) || 0) - (after.get(name) || 0));
  names.sort((a, b) => apart(b) - apart(a));
  return section("ops", "Ops", table("How many nodes of each op", ["op", number("first"), number("second"), number("difference")],
    names.slice(0, MOST).map((n) => [short(n), whole(before.get(n) || 0), whole(after.get(n) || 0), change(before.get(n) || 0, after.get(n) || 0)]),
    { "data-chart": "ops" }));
}

function outputs(found) {
  if (!found.samples) return section("outputs", "Outputs", el("p", { class: "quiet" }, "They were not run; --samples runs both on drawn samples."));
  const share = (o) => (o.largest !== null && o.peak ? real(o.largest / o.peak, 3) : "-");
  return section("outputs", "Outputs", table(`How far outputs are apart on ${whole(found.samples)} drawn samples`,
    ["output of the first", "of the second", number("largest difference"), number("share of the largest value")],
    found.outputs.map((o) => [short(o.output), short(o.other), o.largest === null ? "not comparable" : real(o.largest, 3), share(o)]),
    { "data-chart": "outputs" }));
}
