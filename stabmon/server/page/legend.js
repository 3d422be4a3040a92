// What the colours of a picture stand for.

import { make } from "./dom.js";
import { number } from "./words.js";

export function scaleChips({ data: { range, list, odd } }) {
  if (!(range.low <= range.high)) return [];
  const middle = range.log ? Math.sqrt(range.low * range.high) : (range.low + range.high) / 2;
  const bar = make("i", { class: "ramp" });
  bar.style.background = `linear-gradient(to right, ${list.join()})`;
  const text = `${number(range.low)} `;
  return [
    make("span", { class: "scale", title: range.log ? "logarithmic" : "linear" }, text, bar, ` ${number(range.high)}`, make("small", {}, ` (middle ${number(Number(middle.toPrecision(2)))})`)),
    ...(odd ? [make("span", { class: "scale" }, make("i", { class: "stripes" }), " not finite")] : []),
  ];
}
