// The parts of the page that are tables and figures.

import { bytes, change, count, percent, real, whole } from "./amounts.js";
import { bar, el, number, short, table } from "./dom.js";

const WORST = 20;
const WHOLE = 4 << 20;
const most = (values) => Math.max(1e-300, ...values.filter((v) => v !== null && Number.isFinite(v)));

export function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title`, tabindex: -1 }, title), children);
}

function card(title, value, ...notes) {
  return el("div", { class: "card" }, el("dt", null, title), el("dd", null,
    el("span", { class: "big" }, value), notes.filter(Boolean).map((n) => el("span", { class: "note" }, n))));
}

export function overview(target) {
  const { source, model, compressed, accuracy, budget } = target.report;
  const cards = [
    card("Model", bytes(model.bytes), change(source.bytes, model.bytes, bytes)),
    card("Compressed", bytes(compressed.bytes), compressed.compressor),
    card("Nodes", whole(model.nodes), change(source.nodes, model.nodes), model.basis),
    card("Parameters", count(model.parameters), change(source.parameters, model.parameters, count), model.basis),
  ];
  for (const metric of accuracy ? accuracy.metrics.slice(0, 2) : []) {
    cards.push(card(metric.metric, real(metric.after), `${real(metric.before)} before`, accuracy.basis));
  }
  if (accuracy) cards.push(card("Outputs off by", real(accuracy.largest_difference, 2), `${whole(accuracy.samples)} samples`, accuracy.basis));
  if (budget.length) {
    const tight = budget.reduce((a, b) => (b.found / b.limit > a.found / a.limit ? b : a));
    cards.push(card("Tightest budget", percent(tight.found / tight.limit), tight.name));
  }
  return section("overview", "Overview", el("dl", { class: "cards" }, cards), preprocessing(target), warnings(target));
}

function preprocessing(target) {
  const { preprocessing: found } = target.report;
  if (!found) return null;
  const compared = found.largest_difference === null ? "" : ` It agrees with the graph on ${whole(found.samples)} samples (${found.data}): `
    + `largest difference ${real(found.largest_difference, 2)} of the peak, at most ${real(found.tolerance)}.`;
  return el("p", { "data-chart": "preprocessing" }, `Preprocessing in the app: ${found.summary}; input ${found.preprocessing.input}.${compared}`);
}

function warnings(target) {
  const { report } = target;
  const told = [
    ...report.source.warnings.map((text) => ["freezing", text]),
    ...report.steps.flatMap((step) => step.warnings.map((text) => [step.name, text])),
    ...report.calibrations.flatMap((c) => c.warnings.map((text) => ["calibration", text])),
    ...(report.check ? report.check.warnings.map((text) => ["check", text]) : []),
    ...dataSets(report).flatMap((one) => one.warnings.map((text) => [one.name ? `validation ${one.name}` : "validation", text])),
    ...report.warnings.map((text) => ["model", text]),
  ];
  return [
    el("h3", null, `Warnings (${told.length})`),
    told.length
      ? el("ul", { class: "warnings", "data-chart": "warnings" }, told.map(([where, text]) =>
          el("li", null, el("strong", null, where), " ", text)))
      : el("p", { class: "quiet" }, "There are none."),
  ];
}

export function candidates(targets) {
  const found = targets.filter((t) => t.report.candidate);
  if (!found.length) return null;
  const ends = (values, text) => (values.length ? [...new Set(values.map(text))].join(" to ") : "-");
  const milliseconds = (seconds) => real(seconds * 1e3, 3);
  const rows = found.map(({ report: { target, candidate: c } }) => [short(target), count(c.parameters), bytes(c.float_bytes), bytes(c.eightbit_bytes),
    ends(c.compressed_bytes, bytes), `${c.uncounted.length ? ">" : ""}${count(c.flops)}`, c.best_seconds === null ? "-" : milliseconds(c.best_seconds),
    ends(c.likely_seconds, milliseconds), bytes(c.ram_bytes), c.lacks.join(", ") || "-"]);
  const notes = [...new Set(found.flatMap(({ report: { candidate: c } }) => [
    ...[c.reason, ...c.notes].filter(Boolean).map((text) => `${c.model}: ${text}`), ...c.assumptions]))];
  return section("candidates", "Models of the recipe",
    table("Source models side by side", ["target", number("parameters"), number("float"), number("8-bit"), number("compressed"), number("FLOPs"),
      number("best ms"), number("likely ms"), number("RAM"), "lacks ops"], rows, { "data-chart": "candidates" }),
    el("ul", { class: "quiet" }, notes.map((text) => el("li", null, text))));
}

export function stepsTable(target) {
  const { source, steps, check, model, compressed } = target.report;
  const rows = [{ name: "frozen source", ...source }, ...steps];
  const top = most(rows.map((r) => r.bytes));
  const packed = target.compressed;
  const cells = rows.map((row, at) => [
    short(row.name),
    whole(row.nodes),
    bar(bytes(row.bytes), row.bytes / top),
    bar(bytes(packed[at]), (packed[at] || 0) / top, "second"),
    at ? whole(row.matched) : "",
    at ? `+${whole(row.added)} -${whole(row.removed)} ~${whole(row.changed)}` : "",
    at && check ? real(row.largest_difference, 2) : "",
  ]);
  cells.push([short(model.file), whole(model.nodes), bar(bytes(model.bytes), model.bytes / top),
    bar(bytes(compressed.bytes), compressed.bytes / top, "second"), "", "", ""]);
  const skipped = steps.flatMap((s) => Object.entries(s.skipped).map(([why, n]) => `${s.name}: ${whole(n)} left as they were: ${why}`));
  return [
    table("Each step and the graph after it", ["step", number("nodes"), number("bytes"), number("compressed"),
      number("matched"), number("added, removed, changed"), number("off by")], cells, { "data-chart": "steps" }),
    source.bytes > WHOLE ? el("p", { class: "quiet" }, "Of graphs over 4 MiB an eighth of each large constant is compressed here, by itself: the sizes are estimates, some percent off those of one file.") : null,
    skipped.length ? el("details", null, el("summary", null, "What steps left as it was"),
      el("ul", null, skipped.map((text) => el("li", null, text)))) : null,
  ];
}

// The accuracy on each data set with its name, or the only one without a name.
export function dataSets(report) {
  if (report.validations) return report.validations.data_sets;
  return report.accuracy ? [report.accuracy] : [];
}

export function accuracy(target, show) {
  const { validations, damage, engines } = target.report;
  const parts = [];
  for (const found of dataSets(target.report)) {
    const limit = (m) => [m.max_drop !== null ? `drop at most ${real(m.max_drop)}` : "",
      m.at_least !== null ? `at least ${real(m.at_least)}` : "", m.at_most !== null ? `at most ${real(m.at_most)}` : ""]
      .filter(Boolean).join(", ") || "-";
    const of = found.name ? ` of ${found.name}` : "";
    const basis = found.basis ? `, ${found.basis}` : "";
    parts.push(table(`Metrics on ${whole(found.samples)} samples${of}${basis}`, ["metric", "output", number("source"), number("model"), number("worse by"), "limit"],
      found.metrics.map((m) => [m.metric, short(m.output), real(m.before), real(m.after), real(m.drop), limit(m)]), { "data-chart": "metrics" }));
    const top = most(found.outputs.map((o) => o.share_of_peak));
    parts.push(table(`How far outputs are from the source's${of ? ` on samples${of}` : ""}${basis}`, ["output", number("largest difference"), number("share of the largest value")],
      found.outputs.map((o) => [short(o.output), real(o.largest_difference, 3), bar(percent(o.share_of_peak), (o.share_of_peak || 0) / top)]), { "data-chart": "outputs" }));
  }
  if (!parts.length) parts.push(el("p", { class: "quiet" }, "The recipe has no validation, so that accuracy is not known."));
  if (validations && validations.gaps.length) {
    parts.push(table("Gaps between data sets", ["metric", "output", "data set", number("value"), "compared with", number("its value"), number("gap"), number("limit")],
      validations.gaps.map((g) => [g.metric, short(g.output), g.name, real(g.value), g.first_name, real(g.first_value), real(g.gap), real(g.max_gap)]), { "data-chart": "gaps" }));
  }
  parts.push(...worst(damage, show));
  if (engines.length) {
    const ran = [...new Set(engines.map((e) => `${e.name} ${e.version}`.trim()))];
    parts.push(el("p", { class: "quiet" }, `Run by ${ran.join(", ")}.`));
  }
  return section("accuracy", "Accuracy", parts);
}

function worst(damage, show) {
  if (!damage) return [];
  if (damage.unmeasured) return [el("p", null, `What quantizing did to tensors was not measured: ${damage.unmeasured}`)];
  const rows = damage.tensors.slice(0, WORST);
  const top = most(rows.map((t) => Math.abs(t.sqnr)));
  return [
    table(`The ${rows.length} tensors that quantizing changed most, of ${damage.tensors.length}`,
      ["tensor", "op", number("signal to noise (dB)"), number("cosine"), number("clipped"), number("error in steps")],
      rows.map((t) => [el("button", { type: "button", class: "link", onclick: () => show(t.tensor) }, short(t.tensor)), t.op,
        bar(real(t.sqnr, 3), Math.max(t.sqnr, 0) / top, t.sqnr < 15 ? "bad" : ""), real(t.cosine), percent(t.clipped), real(t.rmse_over_scale, 3)]),
      { "data-chart": "worst" }),
  ];
}

export function ops(target) {
  const before = target.report.source.ops;
  const after = target.report.ops;
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const size = (name) => Math.max(before[name] || 0, after[name] || 0);
  names.sort((a, b) => size(b) - size(a) || (a < b ? -1 : 1));
  const top = most(names.map(size));
  const rows = (some) => some.map((name) => [short(name), bar(whole(before[name] || 0), (before[name] || 0) / top, "second"),
    bar(whole(after[name] || 0), (after[name] || 0) / top)]);
  const head = ["op", number("source"), number("model")];
  const many = names.length > 40;
  const basis = target.report.model.basis ? `, ${target.report.model.basis}` : "";
  return section("ops", "Ops before and after",
    table(`How many nodes of each op${basis}`, head, rows(names.slice(0, 40)), { "data-chart": "ops" }),
    many ? el("details", null, el("summary", null, `${names.length - 40} more ops`), table("The other ops", head, rows(names.slice(40)))) : null);
}

export function budgets(target) {
  const { budget } = target.report;
  if (!budget.length) return section("budgets", "Budgets", el("p", { class: "quiet" }, "The recipe sets none."));
  const rows = budget.map((line) => {
    const share = line.limit ? line.found / line.limit : 1;
    return [line.name, bar(real(line.found, 6), share, share > 0.95 ? "bad" : share > 0.8 ? "near" : ""), real(line.limit, 6),
      `${real(line.limit - line.found, 4)} (${percent(1 - share)})`, line.basis || "-"];
  });
  return section("budgets", "Budgets", table("What the model takes of each limit",
    ["limit", number("found"), number("allowed"), number("left"), "rests on"], rows, { "data-chart": "budgets" }));
}

export function pipeline(target) {
  const { pipeline: found } = target.report;
  if (!found) return null;
  const cases = ["expected", "p95", "worst"];
  const cells = (amounts) => cases.map((name) => real(amounts[name]));
  const rows = found.steps.map((step, at) => [short(`${at + 1} ${step.model}`), ...cells(step.runs), ...cells(step.flops), step.basis]);
  rows.push(["total", "", "", "", ...cells(found.flops), ""]);
  const latency = found.latency_ms ? `Latency at best on ${found.device}: ${cases.map((name) => `${real(found.latency_ms[name])} ms ${name}`).join(", ")}.` : "";
  const loaded = found.keep_loaded ? "all models loaded" : "one model loaded at a time";
  return section("pipeline", "Pipeline",
    table("Runs and operations for one input", ["step", number("runs"), number("runs p95"), number("runs worst"),
      number("FLOPs"), number("FLOPs p95"), number("FLOPs worst"), "source of the runs"], rows, { "data-chart": "pipeline" }),
    latency ? el("p", null, latency) : null,
    el("p", null, `RAM: ${bytes(found.ram_bytes)} of model files and tensors, ${loaded}.`),
    found.basis ? el("p", { class: "quiet" }, found.basis) : null);
}

export function ends(target) {
  const { lite: found } = target.report;
  if (!found) return null;
  const stream = found.streaming;
  const states = new Map(stream ? stream.states.flatMap((s) => [[s.input, `state: ${s.output} of the previous call, zeros at first`], [s.output, `state: becomes ${s.input} of the next call`]]) : []);
  const axes = stream ? { ...stream.inputs, ...stream.outputs } : {};
  const note = (end, kind) => states.get(end.name)
    || [end.name in axes ? `axis ${axes[end.name]} is time` : "", kind === "input" && end.shape.includes(-1) ? "open sizes: resize it before a run" : ""].filter(Boolean).join("; ");
  const rows = (list, kind) => list.map((end) => [short(end.name), kind, end.dtype, end.shape.map((s) => (s < 0 ? "?" : s)).join(" \u00d7 "), note(end, kind)]);
  const title = stream ? `Inputs and outputs of a call, which runs ${whole(stream.steps)} time step${stream.steps === 1 ? "" : "s"}` : "Inputs and outputs of the file";
  return section("ends", "Inputs and outputs",
    table(title, ["tensor", "kind", "type", "sizes", "notes"], [...rows(found.inputs, "input"), ...rows(found.outputs, "output")], { "data-chart": "ends" }));
}

export function files(target) {
  const entries = Object.entries(target.report.files).sort((a, b) => b[1] - a[1]);
  const top = most(entries.map((e) => e[1]));
  return section("files", "Files", table("What lies in the target's folder", ["file", number("bytes")],
    entries.map(([name, size]) => [short(name), bar(whole(size), size / top)]), { "data-chart": "files" }));
}

export function stages(list) {
  if (!list || !list.length) return null;
  const rows = [...list].sort((a, b) => b.seconds - a.seconds);
  const top = most(rows.map((s) => s.seconds));
  const ran = list.filter((s) => s.ran);
  const sum = ran.reduce((total, s) => total + s.seconds, 0);
  return section("stages", "The build",
    el("p", null, `${ran.length} of ${list.length} stages ran and took ${real(sum, 3)} s together; the others came from the store.`),
    table("Stages of all targets, the slowest first", ["stage", number("seconds"), "results"],
      rows.map((s) => [short(s.task), bar(real(s.seconds, 3), s.seconds / top, s.ran ? "" : "second"),
        s.ran ? "made in this build" : "from the store; the time is that of the run that made them"]), { "data-chart": "stages" }));
}
