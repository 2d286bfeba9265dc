// The operators of a LiteRT file that `quantize: auto` excepts from int8, and what each group costs.

import { bar, el, number, short, table } from "./dom.js";
import { bytes, percent, real } from "./amounts.js";
import { section } from "./sections.js";

const NAMED = 3;
export const MODES = { int16x8: "with 16-bit activations", float: "in float" };

const signed = (value, text) => `${value > 0 ? "+" : ""}${text}`;
const named = (names) => names.slice(0, NAMED).map((name) => short(name)).join(", ") + (names.length > NAMED ? ", ..." : "");

// The mode of each excepted node; one that is in both modes is in float.
export function exceptionModes(found) {
  const groups = found ? found.exceptions : [];
  return new Map(Object.keys(MODES).flatMap((mode) => groups.flatMap((one) => (one.modes[mode] || []).map((name) => [name, mode]))));
}

function rows(found) {
  return found.exceptions.map((one) => [
    Object.keys(MODES).filter((mode) => one.modes[mode]).map((mode) => el("div", null, named(one.modes[mode]), el("span", { class: "quiet" }, ` ${MODES[mode]}`))),
    bar(percent(one.int8_macs), one.int8_macs),
    `${signed(-one.gain, (-one.gain).toFixed(2))} dB`,
    signed(one.bytes, bytes(one.bytes)),
    one.latency_ms === undefined || one.latency_ms === null ? "-" : signed(one.latency_ms, `${real(one.latency_ms, 3)} ms`),
  ]);
}

export function exceptions(target) {
  const { exceptions: found } = target.report;
  if (!found) return null;
  const title = "Exceptions from int8";
  const modes = [...exceptionModes(found)];
  const summary = Object.entries(MODES).map(([mode, text]) => [modes.filter((one) => one[1] === mode).length, text])
    .filter(([nodes]) => nodes).map(([nodes, text]) => `${nodes} node${nodes > 1 ? "s" : ""} ${text}`).join(" and ") || "All operators with integer kernels are in int8";
  const shares = `${percent(found.int8_macs)} of the multiply-accumulates are in int8, and ${percent(found.integer_macs)} in integers.`;
  const device = found.device ? `latency on ${found.device}` : "latency";
  return section("exceptions", title,
    el("p", null, `${summary}. ${shares}`),
    found.exceptions.length ? [
      table("Groups in the order of their effect, each in addition to those before", ["nodes", number("int8 MACs after it"), number("error"), number("bytes"), number(device)],
        rows(found), { "data-chart": "exceptions" }),
      el("details", null, el("summary", null, `All ${modes.length} nodes`),
        table("Excepted nodes", ["node", "computes"], modes.map(([name, mode]) => [short(name, 120), MODES[mode]]), { "data-chart": "excepted" })),
      el("p", null, "To keep them without another search, replace ", el("code", null, "auto"), " with ", el("code", null, "int8"), " and these rules:"),
      el("pre", { tabindex: 0, "data-chart": "rules" }, `rules: [${found.rules.join(", ")}]`)] : null);
}
