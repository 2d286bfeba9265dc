// Where boxes lie: each open scope is laid out by itself, so that opening one moves its neighbors
// and leaves the inside of the others as it is.

import { Graph, layout } from "@dagrejs/dagre";

import { short } from "./dom.js";

const LETTER = 7.6;
const PADDING = 14;
const HEAD = 26;

export function boxSize(box) {
  const letters = short(box.label || "(no name)", 26).length;
  const width = Math.max(box.isScope ? 122 : 72, letters * LETTER + 22);
  return { width, height: box.isScope ? 44 : 40 };
}

// Sizes and places of what is in a scope, relative to its own corner; kept until forgotten.
export function laidOut(box, open) {
  if (!box.layout) box.layout = arrange(box, open);
  return box.layout;
}

export function forget(box) {
  for (let at = box; at; at = at.parent) at.layout = null;
}

function arrange(box, open) {
  const graph = new Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 34, edgesep: 8, ranker: "longest-path" });
  graph.setDefaultEdgeLabel(() => ({}));
  const joined = new Set();
  for (const edge of box.edges.values()) {
    joined.add(edge.from);
    joined.add(edge.to);
  }
  const sizes = new Map();
  for (const child of box.children) {
    const inner = child.isScope && open.has(child) ? laidOut(child, open) : null;
    sizes.set(child, inner ? { width: inner.width, height: inner.height } : boxSize(child));
    if (joined.has(child)) graph.setNode(child.id, { ...sizes.get(child) });
  }
  for (const edge of box.edges.values()) graph.setEdge(edge.from.id, edge.to.id, {});
  if (joined.size) layout(graph);
  const items = [];
  let right = 0;
  let bottom = 0;
  for (const child of box.children) {
    if (!joined.has(child)) continue;
    const { x, y, width, height } = graph.node(child.id);
    items.push({ box: child, x: x - width / 2, y: y - height / 2, width, height });
    right = Math.max(right, x + width / 2);
    bottom = Math.max(bottom, y + height / 2);
  }
  const edges = [];
  for (const edge of box.edges.values()) {
    const { points } = graph.edge(edge.from.id, edge.to.id);
    edges.push({ ...edge, points });
    for (const point of points) right = Math.max(right, point.x);
  }
  const alone = box.children.filter((child) => !joined.has(child));
  const rows = grid(alone, sizes, Math.max(right, 640), bottom ? bottom + 24 : 0);
  items.push(...rows.items);
  const inset = box.parent ? PADDING : 0;
  const head = box.parent ? HEAD : 0;
  const shift = (place) => ({ ...place, x: place.x + inset, y: place.y + inset + head });
  return {
    items: items.map(shift),
    edges: edges.map((edge) => ({ ...edge, points: edge.points.map(shift) })),
    width: Math.max(right, rows.right, box.isScope ? boxSize(box).width : 0) + 2 * inset,
    height: Math.max(bottom, rows.bottom) + 2 * inset + head,
  };
}

// What nothing in the scope is joined to, in rows below the rest.
function grid(alone, sizes, widest, from) {
  const items = [];
  let [x, y, high, right] = [0, from, 0, 0];
  for (const box of alone) {
    const { width, height } = sizes.get(box);
    if (x && x + width > widest) {
      x = 0;
      y += high + 14;
      high = 0;
    }
    items.push({ box, x, y, width, height });
    right = Math.max(right, x + width);
    x += width + 14;
    high = Math.max(high, height);
  }
  return { items, right, bottom: items.length ? y + high : 0 };
}
