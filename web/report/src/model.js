// The graphs of a target: nodes, scopes, and what each step did to each node.

import { plain } from "./dom.js";

const DEEPEST = 16;
const MOST_CHILDREN = 48;

// One graph of a page's data, with lookups.
export class GraphData {
  constructor(raw) {
    this.raw = raw;
    this.names = raw.names || [];
    this.count = this.names.length;
    this.at = new Map(this.names.map((name, at) => [name, at]));
    this.weights = new Map((raw.weights || []).map((w) => [w.node, w]));
  }

  op(at) {
    return this.raw.texts[this.raw.ops[at]];
  }

  inputs(at) {
    const flat = this.raw.inputs[at];
    const found = [];
    for (let i = 0; i < flat.length; i += 2) found.push({ node: flat[i], output: flat[i + 1] });
    return found;
  }

  attributes(at) {
    return this.raw.attrs[at].map((number) => {
      const text = this.raw.texts[number];
      const split = text.indexOf(": ");
      return [text.slice(0, split), text.slice(split + 2)];
    });
  }

  shapes(at) {
    return this.raw.shapes[at].map((number) => this.raw.texts[number]);
  }

  get consumers() {
    if (!this._consumers) {
      this._consumers = Array.from({ length: this.count }, () => []);
      for (let at = 0; at < this.count; at += 1) {
        for (const { node, output } of this.inputs(at)) this._consumers[node].push({ node: at, output });
      }
    }
    return this._consumers;
  }

  get tree() {
    if (!this._tree) this._tree = scopeTree(this);
    return this._tree;
  }

  opCounts() {
    const found = new Map();
    for (let at = 0; at < this.count; at += 1) found.set(this.op(at), (found.get(this.op(at)) || 0) + 1);
    return found;
  }
}

// Inputs before what takes them, as far as loops allow.
function order(graph) {
  const left = graph.raw.inputs.map((flat) => flat.length / 2);
  const ready = [];
  for (let at = 0; at < graph.count; at += 1) if (!left[at]) ready.push(at);
  const place = new Int32Array(graph.count).fill(-1);
  let next = 0;
  let spare = 0;
  for (let read = 0; next < graph.count; ) {
    if (read === ready.length) {
      // A loop: its first node that is left goes on.
      while (place[spare] >= 0) spare += 1;
      ready.push(spare);
    }
    const at = ready[read];
    read += 1;
    if (place[at] >= 0) continue;
    place[at] = next;
    next += 1;
    for (const { node } of graph.consumers[at]) {
      left[node] -= 1;
      if (left[node] <= 0 && place[node] < 0) ready.push(node);
    }
  }
  return place;
}

function scope(id, label, parent) {
  return { id, label, parent, children: [], depth: parent ? parent.depth + 1 : 0, edges: null,
    nodes: 0, parameters: 0, bytes: 0, flops: 0, first: Infinity, isScope: true };
}

function scopeTree(graph) {
  const root = scope("", "", null);
  const scopes = new Map([["", root]]);
  const place = order(graph);
  const leaves = new Array(graph.count);
  for (let at = 0; at < graph.count; at += 1) {
    const parts = graph.names[at].split("/");
    let parent = root;
    let path = "";
    const deep = Math.min(parts.length - 1, DEEPEST);
    for (let level = 0; level < deep; level += 1) {
      path += `${parts[level]}/`;
      let found = scopes.get(path);
      if (!found) {
        found = scope(path, parts[level], parent);
        scopes.set(path, found);
        parent.children.push(found);
      }
      parent = found;
    }
    leaves[at] = { id: `${at}`, at, label: parts.slice(deep).join("/"), parent, nodes: 1,
      parameters: graph.raw.parameters[at], bytes: graph.raw.bytes[at], flops: graph.raw.flops[at],
      first: place[at], isScope: false };
    parent.children.push(leaves[at]);
  }
  settle(root);
  return { root, scopes, leaves };
}

// Sums, shorter paths and smaller groups, from the innermost scopes outwards.
function settle(box) {
  for (const child of box.children) if (child.isScope) settle(child);
  if (box.parent) {
    while (box.children.length === 1 && box.children[0].isScope) {
      const only = box.children[0];
      box.label += `/${only.label}`;
      box.children = only.children;
      for (const child of box.children) child.parent = box;
    }
  }
  box.children.sort((a, b) => a.first - b.first);
  for (const child of box.children) {
    for (const sum of ["nodes", "parameters", "bytes", "flops"]) box[sum] += child[sum];
    box.first = Math.min(box.first, child.first);
  }
  while (box.children.length > MOST_CHILDREN) box.children = chunks(box);
  if (!box.parent) deepen(box);
}

// Runs of neighbors of a scope that has more than can be looked at.
function chunks(box) {
  const size = Math.max(8, Math.min(40, Math.ceil(Math.sqrt(box.children.length))));
  const found = [];
  for (let from = 0; from < box.children.length; from += size) {
    const part = box.children.slice(from, from + size);
    const nodes = part.reduce((sum, child) => sum + child.nodes, 0);
    const made = scope(`${box.id}\0${part[0].id}-${part.length}-${nodes}`, "", box);
    made.label = `${part[0].label} ... ${part[part.length - 1].label}`;
    made.isRun = true;
    made.children = part;
    for (const child of part) {
      child.parent = made;
      for (const sum of ["nodes", "parameters", "bytes", "flops"]) made[sum] += child[sum];
      made.first = Math.min(made.first, child.first);
    }
    found.push(made);
  }
  return found;
}

function deepen(box) {
  for (const child of box.children) {
    child.depth = box.depth + 1;
    if (child.isScope) deepen(child);
  }
}

// The edges between children of each scope: a tensor is drawn where its two ends part.
export function scopeEdges(graph) {
  const { root, leaves } = graph.tree;
  if (root.edges) return;
  const clear = (box) => {
    box.edges = new Map();
    for (const child of box.children) if (child.isScope) clear(child);
  };
  clear(root);
  for (let at = 0; at < graph.count; at += 1) {
    for (const { node, output } of graph.inputs(at)) {
      let a = leaves[node];
      let b = leaves[at];
      while (a.depth > b.depth) a = a.parent;
      while (b.depth > a.depth) b = b.parent;
      while (a.parent !== b.parent) {
        a = a.parent;
        b = b.parent;
      }
      if (a === b) continue;
      const key = `${a.id}\n${b.id}`;
      const edges = a.parent.edges;
      const known = edges.get(key);
      if (known) {
        known.count += 1;
        known.isControl = known.isControl && output < 0;
      } else edges.set(key, { from: a, to: b, count: 1, isControl: output < 0, node, output });
    }
  }
}

// What each step did, by the name that a node has after it.
export class History {
  constructor(steps) {
    this.steps = (steps || []).map((step) => {
      const byName = new Map();
      for (const [kind, name, detail, before, after, largest] of step.changes) {
        const told = { kind, detail, before, after, largest };
        if (byName.has(name)) byName.get(name).push(told);
        else byName.set(name, [told]);
      }
      return { name: step.name, byName, newNames: new Map(step.renamed), leftOut: step.left_out,
        oldNames: new Map(step.renamed.map(([old, now]) => [now, old])) };
    });
  }

  // Of a node of the graph that ships: what steps did to it, in order.
  backward(name) {
    const found = [];
    let now = name;
    for (let at = this.steps.length - 1; at >= 0; at -= 1) {
      const step = this.steps[at];
      const changes = [...(step.byName.get(now) || [])];
      const old = step.oldNames.get(now);
      if (old !== undefined) changes.unshift({ kind: "renamed", detail: "", before: old, after: now, largest: null });
      if (changes.length) found.unshift({ step: at, name: step.name, changes });
      if (changes.some((change) => change.kind === "added")) break;
      if (old !== undefined) now = old;
    }
    return found;
  }

  // Of a node of the source.
  forward(name) {
    const found = [];
    let now = name;
    for (let at = 0; at < this.steps.length; at += 1) {
      const step = this.steps[at];
      const next = step.newNames.get(now);
      const changes = [...(step.byName.get(next ?? now) || [])];
      if (next !== undefined) changes.unshift({ kind: "renamed", detail: "", before: now, after: next, largest: null });
      if (changes.length) found.push({ step: at, name: step.name, changes });
      if (changes.some((change) => change.kind === "removed")) break;
      if (next !== undefined) now = next;
    }
    return found;
  }

  // The name in the source of a node of the graph that ships.
  sourceName(name) {
    let now = name;
    for (let at = this.steps.length - 1; at >= 0; at -= 1) now = this.steps[at].oldNames.get(now) ?? now;
    return now;
  }
}

export class Target {
  constructor(raw) {
    this.name = raw.name;
    this.report = raw.report;
    const shipped = raw.report.model?.basis ? "graph before conversion" : "model that ships";
    this.titles = { model: shipped, source: "frozen source", history: "What each step did" };
    const nodes = raw.nodes || {};
    const empty = { left_out: "this build left none", names: [], weights: [] };
    this.compressed = nodes.compressed || [];
    this.ranges = new Map((nodes.ranges || []).map(([name, low, high]) => [name, { low, high }]));
    const [source, model] = nodes.graphs || [empty, empty];
    this.graphs = { source: new GraphData(source), model: new GraphData(model) };
    this.history = new History(nodes.steps);
    const damage = this.report.damage;
    this.damage = new Map((damage ? damage.tensors : []).map((t) => [t.tensor, t]));
  }

  label() {
    return plain(this.name);
  }
}
