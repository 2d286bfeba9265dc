// Makes elements. Texts of models reach the page through here alone, as text and never as markup.

const SVG = "http://www.w3.org/2000/svg";
const LONGEST = 2000;
// Controls, marks that turn the direction of writing, and halves of characters would hide what is there.
const UNSHOWN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;

export function plain(text) {
  const all = String(text);
  const kept = all.length > LONGEST ? `${all.slice(0, LONGEST - 200)}...${all.slice(-190)}` : all;
  return kept.replace(UNSHOWN, (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);
}

export function short(text, most = 60) {
  const all = plain(text);
  if (all.length <= most) return all;
  const tail = Math.floor((most - 3) / 2);
  return `${all.slice(0, most - 3 - tail)}...${all.slice(all.length - tail)}`;
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
  return element;
}

export function add(element, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : plain(child));
  }
  return element;
}

export const el = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

export function replace(element, ...children) {
  element.replaceChildren();
  return add(element, children);
}

// Draws now and whenever the width of the element changes.
export function drawn(element, draw) {
  let width = 0;
  const again = () => {
    const now = Math.floor(element.clientWidth);
    if (!now || now === width) return;
    width = now;
    draw(width);
  };
  new ResizeObserver(again).observe(element);
  requestAnimationFrame(again);
  return () => {
    width = 0;
    again();
  };
}

// A table that scrolls by itself where it is wider than the page.
export function table(caption, headings, rows, attributes = {}) {
  const head = headings.map((h) =>
    el("th", { scope: "col", class: h.number ? "number" : null }, h.title ?? h),
  );
  const body = rows.map((cells) =>
    el(
      "tr",
      null,
      cells.map((cell, at) => {
        const kind = headings[at].number ? "number" : null;
        if (at === 0) return el("th", { scope: "row" }, cell);
        return el("td", { class: kind }, cell);
      }),
    ),
  );
  return el(
    "div",
    { class: "scrolls", tabindex: 0, role: "region", "aria-label": caption },
    el(
      "table",
      attributes,
      el("caption", null, el("span", null, caption)),
      el("thead", null, el("tr", null, head)),
      el("tbody", null, body),
    ),
  );
}

// A number with a bar; the number stands for those who do not see the bar.
export function bar(text, share, kind = "") {
  const filled = el("span", { class: `fill ${kind}` });
  filled.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return el(
    "span",
    { class: "bar" },
    el("span", { class: "figure" }, text),
    el("span", { class: "track", "aria-hidden": "true" }, filled),
  );
}

export const number = (title) => ({ title, number: true });

let ids = 0;
export const newId = (stem) => `${stem}-${(ids += 1)}`;

export function choice(label, options, chosen, change) {
  const id = newId("choice");
  const select = el(
    "select",
    { id, onchange: () => change(options[select.selectedIndex].value) },
    options.map((o) => el("option", { selected: o.value === chosen }, o.title)),
  );
  return el("span", { class: "choice" }, el("label", { for: id }, label), select);
}
