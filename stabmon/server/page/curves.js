// Curves over the steps. line: { name, colour, dashed, dots, steps, gaps, low, high }.

import { LEFT, plot, RIGHT, stepAxis, valueAxis } from "./axes.js";
import { gapsOf, shapesOf } from "./lines.js";
import { markSeries } from "./marks.js";
import { scaleOf, span } from "./span.js";
import { colour } from "./theme.js";
import { number, place } from "./words.js";

const finite = (value) => (value === null || !Number.isFinite(Number(value)) ? null : Number(value));
const isOdd = (value) => value !== null && !Number.isFinite(Number(value));

// [step, low, high]; null where the axis has no place for either.
function pointsOf({ steps, low, high }, allowed) {
  return steps.map((step, i) => {
    const [least, most] = [low[i], high[i]].map((value) => allowed(finite(value)));
    return [step, least ?? most, most ?? least];
  });
}

// Mean of what came before, which counts less by a factor e every `width` steps.
function smoothed({ steps, low, high }, width, allowed) {
  let [sum, weight, before] = [0, 0, steps[0]];
  return steps.map((step, i) => {
    const value = finite(high[i]);
    if (value === null) return [step, null, null];
    const kept = Math.exp(-(step - before) / width);
    [sum, weight, before] = [sum * kept + (finite(low[i]) + value) / 2, weight * kept + 1, step];
    return [step, ...Array(2).fill(allowed(sum / weight))];
  });
}

function extent(all, [begin, end]) {
  let [least, most] = [Infinity, -Infinity];
  for (const points of all) {
    for (const [step, low, high] of points) if (high !== null && step >= begin && step <= end) [least, most] = [Math.min(least, low), Math.max(most, high)];
  }
  return [least, most];
}

// Where a value was read that is not finite: a cross at the upper edge.
function crosses(lines, scale) {
  const odd = lines.flatMap((line) => line.steps.filter((_, i) => isOdd(line.high[i]) || isOdd(line.low[i])));
  const steps = [...new Set(odd)].sort((a, b) => a - b).map(scale.at);
  const shown = steps.filter((x) => x >= scale.min && x <= scale.max);
  const few = shown.filter((_, i) => i % Math.ceil(shown.length / 40) === 0);
  return { silent: true, animation: false, symbol: "path://M0 0L10 10M10 0L0 10", symbolSize: 9, itemStyle: { color: "none", borderColor: colour("critical"), borderWidth: 2 }, label: { show: false }, data: few.map((x) => ({ coord: [x, 1], y: 27 })) };
}

// The line as it is; where it is smoothed, faint behind its mean.
function itemsOf(line, points, width, allowed) {
  const item = { points, gaps: line.gaps, colour: line.colour, width: line.dashed ? 1.4 : 2, dashed: line.dashed, dots: line.dots, connected: line.dots };
  if (!width || line.dots || line.dashed) return [item];
  return [{ ...item, width: 1, faint: true }, { ...item, points: smoothed(line, width, allowed) }];
}

export function paintCurves(view, panel, { lines, atOne }) {
  const [scale, log, width] = [scaleOf(view), panel.log, view.state.smooth];
  const allowed = (value) => (log && !(value > 0) ? null : value);
  const raw = lines.map((line) => pointsOf(line, allowed));
  const axis = valueAxis(...extent([...raw, atOne ? [[span(view)[0], 1, 1]] : []], span(view)), log);
  const items = lines.flatMap((line, i) => itemsOf(line, raw[i], width, allowed)).sort((a, b) => Boolean(b.dashed) - Boolean(a.dashed));
  const renderItem = ({ dataIndex, coordSys }) => shapesOf(items[dataIndex], { scale, ends: axis, log }, coordSys);
  const one = { silent: true, symbol: "none", animation: false, label: { show: false }, data: [{ yAxis: 1, lineStyle: { color: colour("faint"), type: "dashed" } }] };
  plot(panel, {
    grid: { left: LEFT, right: RIGHT, top: 18, bottom: 24 },
    xAxis: stepAxis(scale),
    yAxis: axis,
    series: [
      { type: "custom", silent: true, clip: true, data: items.map(() => [scale.min, axis.min]), renderItem, markPoint: crosses(lines, scale) },
      ...(atOne ? [{ type: "line", data: [], markLine: one }] : []),
      markSeries(view.marks, scale, panel.wide ? panel.chart.getWidth() - LEFT - RIGHT : 0),
    ],
  });
}

// The newest point at or before a step that has a value.
function indexAt({ steps, high }, step) {
  let found = -1;
  for (let i = 0; i < steps.length && steps[i] <= step; i += 1) if (high[i] !== null) found = i;
  return found;
}

export function readCurves({ lines, unit }, step) {
  return lines.map((line) => {
    const i = indexAt(line, step);
    const ends = i < 0 ? ["–"] : [...new Set([line.low[i], line.high[i]].map(number))];
    return { name: line.name, colour: line.colour, dashed: line.dashed, value: `${ends.join(" … ")}${unit && /\d/.test(ends.at(-1)) ? ` ${unit}` : ""}` };
  });
}

function sentence({ name, steps, low, high }, unit) {
  const read = steps.map((_, i) => i).filter((i) => finite(high[i]) !== null);
  const odd = steps.map((_, i) => i).filter((i) => isOdd(high[i]) || isOdd(low[i]));
  const strange = odd.length ? ` Not finite at step ${number(steps[odd[0]])}${odd.length > 1 ? ` and ${odd.length - 1} more` : ""}.` : "";
  if (read.length === 0) return `${name}: no value here.${strange}`;
  const least = read.reduce((best, i) => (finite(low[i]) < finite(low[best]) ? i : best));
  const most = read.reduce((best, i) => (finite(high[i]) > finite(high[best]) ? i : best));
  const at = (value, i) => `${number(value)} at step ${number(steps[i])}`;
  const last = read[read.length - 1];
  return `${name}: ${at(high[last], last)}${unit ? `, in ${unit}` : ""}; lowest ${at(low[least], least)}, highest ${at(high[most], most)}.${strange}`;
}

export const wordsOfCurves = ({ lines, unit }) => lines.map((line) => sentence(line, unit)).join(" ") || "Nothing was read in these steps.";

export function tableOfCurves({ lines }) {
  const steps = [...new Set(lines.flatMap((line) => line.steps))].sort((a, b) => a - b);
  const found = lines.map((line) => new Map(line.steps.map((step, i) => [step, i])));
  const cell = (line, i, end) => (i === undefined ? null : line[end][i]);
  return {
    columns: ["step", ...lines.flatMap(({ name }) => [`${name} (lowest)`, `${name} (highest)`])],
    rows: steps.map((step) => [step, ...lines.flatMap((line, at) => ["low", "high"].map((end) => cell(line, found[at].get(step), end)))]),
  };
}

// A line of the API as one to draw.
export function lineOf(series, line, style) {
  return { name: place(line.site), steps: series.steps, gaps: gapsOf(series.steps), low: line.low, high: line.high, ...style };
}
