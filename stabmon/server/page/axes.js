// What all charts have in common. The plots of a column begin and end at the same pixel, so that steps line up.

import { colour } from "./theme.js";
import { number } from "./words.js";

export const LEFT = 68;
export const RIGHT = 14;

export function chart(element) {
  const made = echarts.init(element, null, { renderer: "canvas" });
  const watcher = new ResizeObserver(() => {
    if (made.isDisposed()) watcher.disconnect();
    // It is called at once, too.
    else if (element.clientWidth !== made.getWidth() || element.clientHeight !== made.getHeight()) made.resize({ silent: true });
  });
  watcher.observe(element);
  return made;
}

// All anew, and once: axes that glide to new ends would paint everything again in each frame.
export const plot = (panel, option) => panel.chart.setOption({ animation: false, ...option }, true);

export const faintAxis = () => ({
  axisLine: { lineStyle: { color: colour("line") } },
  axisTick: { show: false },
  axisLabel: { color: colour("faint"), hideOverlap: true, fontSize: 11 },
  splitLine: { lineStyle: { color: colour("line"), opacity: 0.6 } },
});

export function stepAxis(scale) {
  const label = { color: colour("faint"), hideOverlap: true, fontSize: 11 };
  const whole = scale.type === "value" ? { minInterval: 1, axisLabel: { ...label, formatter: (step) => (Number.isInteger(step) ? number(step) : "") } } : { axisLabel: label };
  return { ...faintAxis(), ...whole, type: scale.type, min: scale.min, max: scale.max, splitLine: { show: false } };
}

// Ends of an axis that hold these values, on round numbers, and the distance of its lines.
export function roundEnds(low, high, log) {
  if (!(low <= high)) return log ? { min: 0.1, max: 1 } : { min: 0, max: 1 };
  if (log) {
    const [first, last] = [Math.floor(Math.log10(low) - 0.05), Math.ceil(Math.log10(high) + 0.05)];
    return { min: 10 ** first, max: 10 ** Math.max(last, first + 1) };
  }
  const room = high - low || Math.abs(high) || 1;
  const size = 10 ** Math.floor(Math.log10(room / 3));
  const interval = [1, 2, 5, 10].map((factor) => factor * size).find((distance) => room / distance <= 5);
  // What is never negative is not drawn as if it could be.
  const [first, last] = [Math.floor((low >= 0 ? Math.max(0, low - room / 50) : low - room / 50) / interval), Math.ceil((high + room / 50) / interval)];
  return { min: first * interval, max: Math.max(last, first + 1) * interval, interval };
}

export function valueAxis(low, high, log) {
  return { ...faintAxis(), type: log ? "log" : "value", ...roundEnds(low, high, log), axisLabel: { color: colour("faint"), fontSize: 11, formatter: number } };
}
