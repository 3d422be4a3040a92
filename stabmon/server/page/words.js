// Numbers and times as people read them.

export const UNKNOWN = "–";

export function number(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const known = Number(value);
  if (!Number.isFinite(known)) return "not finite";
  const size = Math.abs(known);
  if (Number.isInteger(known) && size < 1e9) return known.toLocaleString("en-US");
  const rounded = Number(known.toPrecision(3));
  return size >= 1e5 || size < 1e-3 ? rounded.toExponential() : String(rounded);
}

// A value of any kind; the server tells numbers that are not finite by name.
export const shown = (value) => (typeof value === "number" || /^(-?Infinity|NaN)$/.test(value) ? number(value) : String(value));

// With its unit, which what is not a number has none of.
export function measured(value, unit) {
  const text = number(value);
  return unit && /\d/.test(text) ? `${text} ${unit}` : text;
}

export function percent(ratio) {
  if (ratio === null || ratio === undefined) return UNKNOWN;
  if (!Number.isFinite(Number(ratio))) return "not finite";
  return ratio < 0.0995 ? `${(100 * ratio).toPrecision(2)} %` : `${Math.round(100 * ratio)} %`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  for (const [limit, size, unit] of [[0.1, 0.001, "ms"], [120, 1, "s"], [7200, 60, "min"], [172800, 3600, "h"]]) {
    if (seconds < limit) {
      const amount = seconds / size;
      return `${unit === "s" || unit === "ms" ? Number(amount.toPrecision(2)) : Math.round(amount)} ${unit}`;
    }
  }
  return `${Math.round(seconds / 86400)} d`;
}

// Of another day with the day: a run goes on for weeks.
export function clock(unixSeconds) {
  const at = new Date(1000 * unixSeconds);
  return at.toDateString() === new Date().toDateString() ? at.toLocaleTimeString() : at.toLocaleString();
}
export const date = (unixSeconds) => new Date(1000 * unixSeconds).toLocaleString();
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
export const SEVERITIES = ["info", "warning", "critical"];
export const symbol = { healthy: "✓", info: "i", warning: "!", critical: "✖", silent: "…", ended: "■" };

export function place(site) {
  if (site.name === "") return "whole model";
  return site.layer === null ? site.role || site.name : `${site.layer} ${site.role}`;
}
export const plain = (name) => name.replaceAll("_", " ");
