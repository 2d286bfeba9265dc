// This build beside another one's page.

import { bytes, change, real, whole } from "./amounts.js";
import { bar, el, newId, number, replace, short, table } from "./dom.js";
import { Target } from "./model.js";
import { dataSets, section } from "./sections.js";

const FORMAT = 1;
const LARGEST = 512 << 20;
const MOST = 200;

export function dataOf(text) {
  const found = /<script type="application\/json" id="data">([^<]*)<\/script>/.exec(text);
  const data = found ? JSON.parse(found[1]) : null;
  if (!data || data.format !== FORMAT || !Array.isArray(data.targets) || !data.targets.length) {
    throw new Error("this is no report page that this one can read");
  }
  return data;
}

export function comparison(target, other, show, use) {
  const id = newId("file");
  const status = el("p", { role: "status", class: "status" });
  const input = el("input", { id, type: "file", accept: ".html,text/html", onchange: async () => {
    const [file] = input.files;
    if (!file) return;
    try {
      if (file.size > LARGEST) throw new Error("the file is too large");
      use(dataOf(await file.text()));
    } catch (error) {
      replace(status, `${short(file.name)} cannot be compared: ${error.message}`);
    }
  } });
  const pick = el("p", { class: "choice" }, el("label", { for: id }, "Compare with the report.html of another build"), input);
  return section("compare", "Comparison with another build", pick, status, other ? compared(target, other, show) : null);
}

function compared(target, data, show) {
  const raw = data.targets.find((t) => t.name === target.name) || data.targets[0];
  const old = new Target(raw);
  const was = old.report;
  const is = target.report;
  const row = (title, before, after, format) => [title, format(before), format(after), change(before, after, format)];
  const rows = [
    row("model bytes", was.model.bytes, is.model.bytes, bytes),
    row("compressed bytes", was.compressed.bytes, is.compressed.bytes, bytes),
    row("nodes", was.model.nodes, is.model.nodes, whole),
    row("parameters", was.model.parameters, is.model.parameters, whole),
  ];
  for (const found of dataSets(is)) {
    const other = dataSets(was).find((one) => one.name === found.name);
    const basis = `${found.name ? ` of ${found.name}` : ""}${found.basis ? `, ${found.basis}` : ""}`;
    for (const metric of found.metrics) {
      const before = other ? other.metrics.find((m) => m.metric === metric.metric && m.output === metric.output) : null;
      rows.push(row(`${metric.metric} ${short(metric.output)}${basis}`, before ? before.after : null, metric.after, real));
    }
  }
  const head = ["", number("other build"), number("this build"), number("difference")];
  return [
    el("p", null, `${short(data.recipe)}/${old.label()} of ${short(data.tool)} beside ${target.label()} of this page.`),
    table("Figures of the models", head, rows, { "data-chart": "compare" }),
    steps(was.steps, is.steps, head),
    ops(was.ops, is.ops, head),
    errors(old, target, show),
    nodes(old.graphs.model, target.graphs.model, show),
  ];
}

function steps(was, is, head) {
  const names = [...new Set([...is.map((s) => s.name), ...was.map((s) => s.name)])];
  const pairs = names.map((name) => [name, was.filter((s) => s.name === name).at(-1), is.filter((s) => s.name === name).at(-1)])
    .filter(([, a, b]) => !a || !b || a.bytes !== b.bytes || a.matched !== b.matched || a.nodes !== b.nodes);
  if (!pairs.length) return el("p", { class: "quiet" }, "Each step did the same.");
  const told = (s) => (s ? `${whole(s.matched)} matched, ${bytes(s.bytes)}` : "no such step");
  return table("Steps that did something else", head, pairs.map(([name, a, b]) => [short(name), told(a), told(b), a && b ? change(a.bytes, b.bytes, bytes) : "-"]));
}

function ops(was, is, head) {
  const names = [...new Set([...Object.keys(was), ...Object.keys(is)])].filter((n) => (was[n] || 0) !== (is[n] || 0)).sort();
  if (!names.length) return el("p", { class: "quiet" }, "The models have the same ops.");
  return table("Ops", head, names.map((n) => [short(n), whole(was[n] || 0), whole(is[n] || 0), change(was[n] || 0, is[n] || 0)]));
}

function errors(old, target, show) {
  const rows = [...target.damage.values()].map((t) => [t, old.damage.get(t.tensor)]).filter(([t, o]) => o && o.sqnr !== t.sqnr)
    .sort(([a, b], [c, d]) => a.sqnr - b.sqnr - (c.sqnr - d.sqnr)).slice(0, 40);
  if (!rows.length) return null;
  const top = Math.max(...rows.flatMap(([a, b]) => [Math.abs(a.sqnr), Math.abs(b.sqnr)]), 1);
  return table("Tensors with another error after quantization", ["tensor", number("other build (dB)"), number("this build (dB)"), number("difference")],
    rows.map(([t, o]) => [el("button", { type: "button", class: "link", onclick: () => show(t.tensor) }, short(t.tensor)),
      bar(real(o.sqnr, 3), Math.max(0, o.sqnr) / top, "second"), bar(real(t.sqnr, 3), Math.max(0, t.sqnr) / top), change(o.sqnr, t.sqnr, (v) => real(v, 3))]));
}

function nodes(a, b, show) {
  if (a.raw.left_out || b.raw.left_out) return null;
  const refs = (g, at) => g.inputs(at).map(({ node, output }) => `${g.names[node]}:${output}`).join(" ");
  const texts = (g, at) => g.attributes(at).map(([k, v]) => `${k}=${v}`).join(" ");
  const found = { added: [], removed: [], changed: [] };
  for (let at = 0; at < b.count; at += 1) {
    const was = a.at.get(b.names[at]);
    if (was === undefined) found.added.push([b.names[at], b.op(at)]);
    else {
      const what = [a.op(was) !== b.op(at) ? `op was ${a.op(was)}` : "", refs(a, was) !== refs(b, at) ? "inputs" : "", texts(a, was) !== texts(b, at) ? "attributes" : "",
        a.shapes(was).join() !== b.shapes(at).join() ? `shape was ${a.shapes(was).join(", ") || "not known"}` : ""].filter(Boolean);
      if (what.length) found.changed.push([b.names[at], what.join("; ")]);
    }
  }
  for (const name of a.names) if (!b.at.has(name)) found.removed.push([name, a.op(a.at.get(name))]);
  const list = (title, entries, isThere) => entries.length ? el("details", { open: entries.length <= 20 },
    el("summary", null, `${whole(entries.length)} nodes ${title}`),
    el("ul", null, entries.slice(0, MOST).map(([name, note]) => el("li", null,
      isThere ? el("button", { type: "button", class: "link", onclick: () => show(name, "model") }, short(name, 80)) : short(name, 80), ` ${short(note, 120)}`)),
      entries.length > MOST ? el("li", null, `and ${whole(entries.length - MOST)} more`) : null)) : null;
  const same = !found.added.length && !found.removed.length && !found.changed.length;
  return [el("h3", null, "Nodes"), same ? el("p", { class: "quiet" }, "The models have the same nodes.") : null,
    list("are new", found.added, true), list("are gone", found.removed, false), list("differ", found.changed, true)];
}
