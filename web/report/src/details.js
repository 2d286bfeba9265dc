// What the page tells of the node or the scope that is chosen.

import { bytes, count, percent, real, whole } from "./amounts.js";
import { histogram } from "./charts.js";
import { drawn, el, plain, replace, short } from "./dom.js";

const MOST = 40;

export function details(view, box) {
  if (!box) return [el("p", { class: "quiet" }, "Choose a box: a scope opens, a node shows what it is and what each step did to it.")];
  return box.isScope ? scopeDetails(view, box) : nodeDetails(view, box);
}

const facts = (pairs) => el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== "")
  .map(([title, value]) => el("div", null, el("dt", null, title), el("dd", null, value))));

function scopeDetails(view, box) {
  const isOpen = view.open.has(box);
  return [
    el("h3", null, box.isRun ? "Neighbors" : "Scope", " ", el("span", { class: "name" }, short(box.isRun ? box.label : box.id, 200))),
    el("button", { type: "button", onclick: () => view.toggle(box), "aria-expanded": String(isOpen) }, isOpen ? "Close" : "Open"),
    facts([["nodes", whole(box.nodes)], ["parameters", count(box.parameters)], ["constants", bytes(box.bytes)], ["FLOPs", count(box.flops)]]),
  ];
}

function nodeDetails(view, box) {
  const { graph, target } = view;
  const { at } = box;
  const name = graph.names[at];
  const link = (node, output, text = "") => el("li", null, el("button", { type: "button", class: "link", onclick: () => view.show(graph.names[node]) },
    short(graph.names[node], 60)), output < 0 ? " (control)" : output ? ` :${output}` : "", text);
  const shapes = graph.shapes(at);
  const inputs = graph.inputs(at);
  const users = graph.consumers[at];
  const source = target.history.sourceName(name);
  const damage = target.damage.get(source) || target.damage.get(name);
  const range = target.ranges.get(source) || target.ranges.get(name);
  return [
    el("h3", { class: "name" }, name),
    facts([
      ["op", graph.op(at)],
      ["shape", shapes.join(", ")],
      ["parameters", graph.raw.parameters[at] ? whole(graph.raw.parameters[at]) : null],
      ["constant", graph.raw.bytes[at] ? bytes(graph.raw.bytes[at]) : null],
      ["FLOPs", graph.raw.flops[at] ? count(graph.raw.flops[at]) : null],
      ["range", range ? `${real(range.low)} to ${real(range.high)}` : null],
    ]),
    damage ? [el("h4", null, "Error after quantization"), facts([["signal to noise", `${real(damage.sqnr, 3)} dB`], ["cosine", real(damage.cosine)],
      ["clipped", damage.clipped === null ? null : percent(damage.clipped)], ["error in steps", damage.rmse_over_scale === null ? null : real(damage.rmse_over_scale, 3)]])] : null,
    weights(graph.weights.get(name)),
    el("h4", null, target.titles.history),
    steps(view.which === "model" ? target.history.backward(name) : target.history.forward(name)),
    el("h4", null, `Inputs (${inputs.length})`),
    el("ul", { class: "ends" }, inputs.slice(0, MOST).map(({ node, output }) => link(node, output, output >= 0 ? ` ${graph.shapes(node)[output] || ""}` : ""))),
    el("h4", null, `Taken by (${users.length})`),
    el("ul", { class: "ends" }, users.slice(0, MOST).map(({ node, output }) => link(node, output))),
    el("h4", null, "Attributes"),
    facts(graph.attributes(at)),
  ];
}

function weights(spread) {
  if (!spread) return null;
  const box = el("div", { class: "chart" });
  drawn(box, (width) => replace(box, histogram([{ ...spread, kind: "first" }], width,
    `Histogram of ${whole(spread.looked_at)} of its ${whole(spread.elements)} values, from ${real(spread.low)} to ${real(spread.high)}`)));
  return [el("h4", null, "Values"), box];
}

function steps(history) {
  if (!history.length) return el("p", { class: "quiet" }, "Nothing: it is as it was.");
  return el("ol", { class: "history" }, history.map((one) => el("li", { value: one.step + 1 },
    el("strong", null, plain(one.name)), el("ul", null, one.changes.map(told)))));
}

function told({ kind, detail, before, after, largest }) {
  if (kind === "added") return el("li", null, `added, as ${after}`);
  if (kind === "removed") return el("li", null, `removed; it was ${before}`);
  const what = kind === "constant" ? "its values" : `${kind} ${detail}`.trim();
  return el("li", null, what, ": ", el("del", null, before), " ", el("ins", null, after),
    largest !== null && largest !== undefined ? `, largest difference ${real(largest, 3)}` : "");
}
