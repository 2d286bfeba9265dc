// The errors of the layers of a quantized file, as strips over the network: a row before and after each repair.

import { percent, whole } from "./amounts.js";
import { choice, el, number, plain, replace, short, table } from "./dom.js";
import { MODES, exceptionModes } from "./exceptions.js";
import { section } from "./sections.js";

// Lower ends of the classes in dB, worst first; 20 dB are errors of a tenth.
const CLASSES = [
  { from: -Infinity, title: "below 10 dB" },
  { from: 10, title: "10 to 20 dB" },
  { from: 20, title: "20 to 30 dB" },
  { from: 30, title: "30 to 40 dB" },
  { from: 40, title: "40 dB and more" },
];
const CAUSES = ["weights", "clipping", "rounding", "rest"];
const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };

const classOf = (ratio) => CLASSES.reduce((found, one, at) => (ratio >= one.from ? at : found), 0);
const decibels = (ratio) => (ratio === null || ratio === undefined ? "-" : `${ratio.toFixed(1)} dB`);
const rowTitles = (repairs) => [repairs.length ? "no repairs" : "the file", ...repairs.map((name) => `after ${name}`)];
const shareCells = (error) => CAUSES.map((cause) => (error && error.shares ? percent(error.shares[cause]) : "-"));

function described(layer, error, mode) {
  const name = `${short(layer.layer, 120)} (${layer.op}${mode ? `, ${MODES[mode]}` : ""})`;
  if (!error) return `${name}: not in this graph`;
  const causes = error.shares ? `; its own error: ${CAUSES.map((cause) => `${cause} ${percent(error.shares[cause])}`).join(", ")}` : "";
  return `${name}: ${decibels(error.sqnr)} with all layers quantized, ${decibels(error.alone)} alone${causes}`;
}

function cell(error, key, excepted) {
  const ratio = error ? error[key] : null;
  const known = ratio !== null && ratio !== undefined;
  const fill = el("span", { class: known ? `heat heat${classOf(ratio)}` : "heat" });
  // The height shows the same as the color.
  fill.style.height = known ? `${Math.max(8, Math.min(100, 100 - 1.8 * ratio))}%` : "0";
  return el("span", { class: excepted ? "cell excepted" : "cell" }, fill);
}

// One row: a slider over its layers, which says what the layer under it is.
function strip(title, layers, at, key, modes, tell) {
  const cells = layers.map((layer) => cell(layer.errors[at], key, modes.has(layer.layer)));
  let chosen = 0;
  const row = el("div", { class: "strip", role: "slider", tabindex: 0, "aria-label": title, "aria-valuemin": 1, "aria-valuemax": layers.length }, cells);
  const choose = (index) => {
    cells[chosen].classList.remove("chosen");
    chosen = Math.max(0, Math.min(layers.length - 1, index));
    cells[chosen].classList.add("chosen");
    const text = described(layers[chosen], layers[chosen].errors[at], modes.get(layers[chosen].layer));
    row.setAttribute("aria-valuenow", chosen + 1);
    row.setAttribute("aria-valuetext", plain(text));
    return `${title}, layer ${whole(chosen + 1)} of ${whole(layers.length)}: ${text}`;
  };
  choose(0);
  row.addEventListener("focus", () => tell(choose(chosen)));
  row.addEventListener("keydown", (event) => {
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    tell(choose(chosen + STEPS[event.key]));
    cells[chosen].scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  cells.forEach((one, index) => {
    one.addEventListener("mouseenter", () => tell(choose(index)));
  });
  return el("div", { class: "striprow" }, el("span", { class: "striptitle" }, title), row);
}

function strips({ layers, repairs }, modes) {
  const facts = el("p", { class: "stripfacts" }, "Point at a layer, or move through a row with the arrow keys.");
  const rows = el("div", { class: "strips", "data-chart": "layers" });
  const draw = (key) => replace(rows, rowTitles(repairs).map((title, at) => strip(title, layers, at, key, modes, (text) => replace(facts, text))));
  draw("alone");
  const views = [{ value: "alone", title: "each layer alone" }, { value: "sqnr", title: "all layers quantized" }];
  return [
    el("div", { class: "tools" }, choice("Signal to noise with", views, "alone", draw),
      el("span", { class: "legend" }, CLASSES.map((one, at) => el("span", { class: `key key${at}` }, one.title)),
        modes.size ? el("span", { class: "key excepted" }, "not in int8") : null)),
    rows, facts];
}

export function layers(target) {
  const { layers: found } = target.report;
  if (!found) return null;
  const title = "Layers of the quantized file";
  if (found.unmeasured) return section("layers", title, el("p", null, `They were not compared with float: ${found.unmeasured}`));
  const titles = rowTitles(found.repairs);
  const ratios = (one, key) => one.errors.map((error) => decibels(error && error[key]));
  const last = (one) => one.errors[one.errors.length - 1];
  const headings = titles.map((name) => number(name));
  return section("layers", title,
    el("p", { class: "quiet" }, `Compared with float on ${whole(found.samples)} samples of ${found.data}, from the first layer to the last. Tall bars are large errors.`),
    found.layers.length ? strips(found, exceptionModes(target.report.exceptions)) : null,
    table("Outputs: signal to noise, and the causes of the error of the file", ["output", ...headings, ...CAUSES.map(number)],
      found.outputs.map((one) => [short(one.output), ...ratios(one, "sqnr"), ...shareCells(last(one))]), { "data-chart": "output-errors" }),
    el("details", null, el("summary", null, `All ${whole(found.layers.length)} layers as a table`),
      table("Layers alone: signal to noise, and the causes of the error in the file", ["layer", "op", ...headings, ...CAUSES.map(number), number("all quantized")],
        found.layers.map((one) => [short(one.layer), one.op, ...ratios(one, "alone"), ...shareCells(last(one)), decibels(last(one).sqnr)]), { "data-chart": "layer-table" })));
}
