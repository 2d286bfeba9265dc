// Draws the page from the data that it holds.

import { scopes, sizes, tensors } from "./charts.js";
import { comparison } from "./compare.js";
import { DIFFER_TITLES, differing } from "./differ.js";
import { choice, el, replace } from "./dom.js";
import { exceptions } from "./exceptions.js";
import { GraphView } from "./graph.js";
import { layers } from "./layers.js";
import { Target } from "./model.js";
import { accuracy, budgets, candidates, ends, files, ops, overview, pipeline, section, stages, stepsTable } from "./sections.js";

const read = (id) => {
  const found = document.getElementById(id);
  return found ? JSON.parse(found.textContent) : null;
};

const page = document.getElementById("page");
const data = read("data");
let other = read("compared");
const main = el("main", { id: "main", tabindex: -1 });
const links = el("ul");
const TITLES = { overview: "Overview", candidates: "Models", sizes: "Sizes", graph: "Graph", accuracy: "Accuracy", exceptions: "Exceptions", layers: "Layers", scopes: "Scopes", tensors: "Tensors",
  ops: "Ops", budgets: "Budgets", pipeline: "Pipeline", ends: "Inputs and outputs", files: "Files", stages: "Build", compare: "Compare" };

function link(titles) {
  replace(links, [...main.querySelectorAll("section")].map((part) => el("li", null, el("a", { href: `#${part.id}` }, titles[part.id]))));
}

function show(raw) {
  const target = new Target(raw);
  const view = new GraphView(target);
  const go = (name, which) => view.show(name, which);
  const compare = el("div");
  const compareWith = () => replace(compare, comparison(target, other, go, (found) => {
    other = found;
    compareWith();
    compare.querySelector("h2").focus();
  }));
  try {
    compareWith();
  } catch (error) {
    // The other page's data may be of anyone; what this build has is shown all the same.
    replace(compare, section("compare", "Comparison with another build", el("p", null, `The other build cannot be compared: ${error.message}`)));
  }
  replace(main,
    overview(target),
    candidates(data.targets),
    section("sizes", "Size at each step", sizes(target), stepsTable(target)),
    view.element,
    accuracy(target, go),
    exceptions(target),
    layers(target),
    scopes(target, go),
    tensors(target, go),
    ops(target),
    budgets(target),
    pipeline(target),
    ends(target),
    files(target),
    stages(data.stages),
    compare);
  link(TITLES);
  window.mobileprep = { view, target };
}

function choices() {
  const targets = data.targets.map((t, at) => ({ value: at, title: t.name }));
  if (!targets.length) return null;
  return targets.length > 1 ? choice("Target", targets, 0, (at) => show(data.targets[at])) : el("p", null, "Target ", el("strong", null, targets[0].title));
}

replace(page,
  el("a", { class: "skip", href: "#main" }, "To the report"),
  el("header", null, el("div", null, el("h1", null, data.recipe), el("p", { class: "quiet" }, data.tool)), choices()),
  el("nav", { class: "contents", "aria-label": "Contents" }, links),
  main);
if (data.difference) {
  replace(main, differing(data));
  link(DIFFER_TITLES);
} else show(data.targets[0]);
document.documentElement.dataset.ready = "true";
