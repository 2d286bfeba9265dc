// Numbers as people read them.

const SIZES = ["B", "kB", "MB", "GB", "TB"];
const COUNTS = ["", "k", "M", "G", "T", "P"];

function scaled(value, units, gap) {
  if (value === null || value === undefined) return "-";
  let at = 0;
  let left = Math.abs(value);
  while (left >= 999.5 && at < units.length - 1) {
    left /= 1000;
    at += 1;
  }
  const digits = at === 0 || left >= 100 ? 0 : left >= 10 ? 1 : 2;
  const text = at === 0 && !Number.isInteger(left) ? left.toPrecision(3) : left.toFixed(digits);
  const unit = units[at] ? `${gap}${units[at]}` : "";
  return `${value < 0 ? "-" : ""}${text}${unit}`;
}

export const bytes = (value) => scaled(value, SIZES, " ");
export const count = (value) => scaled(value, COUNTS, "");
export const whole = (value) =>
  value === null || value === undefined ? "-" : value.toLocaleString("en-US");

export function real(value, digits = 4) {
  if (value === null || value === undefined) return "-";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return whole(value);
  const text = Number(value).toPrecision(digits);
  return text.includes("e") ? text : String(Number(text));
}

export const percent = (value) => (value === null ? "-" : `${real(value * 100, 3)} %`);

export function change(before, after, format = whole) {
  if (before === null || after === null || before === undefined || after === undefined) return "-";
  const apart = after - before;
  if (!apart) return "no change";
  const share = before ? ` (${apart > 0 ? "+" : ""}${real((apart / Math.abs(before)) * 100, 3)} %)` : "";
  return `${apart > 0 ? "+" : "-"}${format(Math.abs(apart))}${share}`;
}
