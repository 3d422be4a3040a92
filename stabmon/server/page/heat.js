// Layer-by-step pictures. Painted pixel by pixel: a library's rectangle for each cell costs a hundred times as much.

import { faintAxis, LEFT, plot, RIGHT, stepAxis } from "./axes.js";
import { markSeries } from "./marks.js";
import { scaleOf } from "./span.js";
import { colour, VIRIDIS } from "./theme.js";
import { measured, number, place } from "./words.js";

const ODD = 1;
const STRIPES = [0xff952dff, 0xff101010];
const DECADES = 12;

// 256 colours between those given, as the pixels of a canvas want them.
function paletteOf(colours) {
  const parts = colours.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (parts.length - 1);
    const [low, share] = [Math.min(Math.floor(at), parts.length - 2), at - Math.min(Math.floor(at), parts.length - 2)];
    const [red, green, blue] = parts[low].map((value, channel) => Math.round(value + share * (parts[low + 1][channel] - value)));
    return ((0xff << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
}

// Lowest and highest finite value; logarithmic unless something is negative.
export function rangeOf(values) {
  let [least, most, positive] = [Infinity, -Infinity, Infinity];
  for (const line of values) {
    for (const text of line) {
      const value = text === null ? NaN : Number(text);
      if (!Number.isFinite(value)) continue;
      [least, most] = [Math.min(least, value), Math.max(most, value)];
      if (value > 0) positive = Math.min(positive, value);
    }
  }
  const log = least >= 0 && positive <= most;
  return log ? { log, low: Math.max(positive, most / 10 ** DECADES), high: most } : { log: false, low: least, high: most };
}

// uint32[site x column]: 0 = nothing read so far, ODD = not finite. What was not read keeps the colour of the reading before.
function cellsOf(values, { log, low, high }, palette) {
  const columns = values[0]?.length ?? 0;
  const found = new Uint32Array(values.length * columns);
  const form = log ? Math.log10 : (value) => value;
  const [begin, width] = [form(low), form(high) - form(low) || 1];
  values.forEach((line, y) => {
    let held = 0;
    line.forEach((text, x) => {
      if (text !== null) {
        const value = Number(text);
        const share = (form(log ? Math.max(value, low) : value) - begin) / width;
        held = Number.isFinite(value) ? palette[Math.round(255 * Math.min(1, Math.max(0, share)))] : ODD;
      }
      found[y * columns + x] = held;
    });
  });
  return found;
}

// Which column lies under each pixel; -1: none.
function columnsAt(pixels, { starts, ends }, scale) {
  let at = 0;
  return Int32Array.from({ length: pixels }, (_, i) => {
    const step = scale.step(scale.min + ((i + 0.5) / pixels) * (scale.max - scale.min));
    while (at + 1 < starts.length && starts[at + 1] <= step + 0.5) at += 1;
    return starts.length && starts[at] <= step + 0.5 && step <= ends[ends.length - 1] + 0.5 ? at : -1;
  });
}

function paintRow(pixels, cells, columns, y) {
  for (let x = 0; x < pixels.length; x += 1) {
    const cell = columns[x] < 0 ? 0 : cells[columns[x]];
    pixels[x] = cell === ODD ? STRIPES[((x + y) >> 2) & 1] : cell;
  }
}

function imageOf(data, scale, width, height) {
  const canvas = document.createElement("canvas");
  const sharp = window.devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.max(1, Math.round(width * sharp)), Math.max(1, Math.round(height * sharp))];
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const columns = columnsAt(canvas.width, data, scale);
  const count = data.values[0]?.length ?? 0;
  let before = -1;
  for (let y = 0; y < canvas.height; y += 1) {
    const row = Math.min(data.values.length - 1, Math.floor(((canvas.height - 1 - y) / canvas.height) * data.values.length));
    if (row === before && !data.odd) pixels.copyWithin(y * canvas.width, (y - 1) * canvas.width, y * canvas.width);
    else paintRow(pixels.subarray(y * canvas.width, (y + 1) * canvas.width), data.cells.subarray(row * count, (row + 1) * count), columns, y);
    before = row;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// data: { starts, ends, sites, values, unit }. `colours`: { list, low, high } where they mean something fixed.
export function prepared(data, colours) {
  const range = colours ? { log: true, ...colours } : rangeOf(data.values);
  const palette = paletteOf(colours?.list ?? VIRIDIS);
  const cells = cellsOf(data.values, range, palette);
  return { ...data, range, list: colours?.list ?? VIRIDIS, cells, odd: cells.includes(ODD) };
}

export function paintHeat(view, panel, data) {
  const scale = scaleOf(view);
  const chosen = data.sites.findIndex(({ name }) => name === panel.chosenIn?.(view, data));
  const paint = ({ coordSys: { x, y, width, height } }) => {
    const line = height / data.sites.length;
    const frame = { type: "rect", shape: { x, y: y + height - (chosen + 1) * line, width, height: line }, style: { fill: "none", stroke: colour("text"), lineWidth: 1.5 } };
    return { type: "group", children: [{ type: "image", style: { image: imageOf(data, scale, width, height), x, y, width, height } }, ...(chosen < 0 ? [] : [frame])] };
  };
  const names = data.sites.map((site, i) => `${i} ${site.name}`);
  plot(panel, {
    grid: { left: panel.left ?? LEFT, right: RIGHT, top: 6, bottom: 24 },
    xAxis: stepAxis(scale),
    yAxis: { ...faintAxis(), type: "category", data: names, splitLine: { show: false }, axisLabel: { color: colour("faint"), fontSize: 10, hideOverlap: true, width: (panel.left ?? LEFT) - 10, overflow: "truncate", formatter: (_, i) => place(data.sites[i]) } },
    series: [{ type: "custom", silent: true, animation: false, data: data.sites.length ? [[scale.min, 0]] : [], renderItem: paint }, markSeries(view.marks, scale, 0)],
  });
}

// The newest value at or before a step.
function valueAt({ starts, values }, row, step) {
  let found = null;
  for (let i = 0; i < starts.length && starts[i] <= step; i += 1) found = values[row][i] ?? found;
  return found;
}

export function readHeat(data, step, row) {
  if (row === null || !data.sites[row]) return [];
  const value = valueAt(data, row, step);
  return [{ name: fullName(data.sites[row]), value: measured(value, data.unit === "1" ? "" : data.unit) }];
}

export const fullName = (site) => (site.layer === null ? site.name || "whole model" : `layer ${site.layer} (${site.name})`);

export function wordsOfHeat({ sites, values, starts, ends }) {
  let [least, most, odd] = [null, null, null];
  values.forEach((line, y) => {
    line.forEach((text, x) => {
      if (text === null) return;
      const value = Number(text);
      if (!Number.isFinite(value)) odd = odd && odd.x <= x ? odd : { x, y };
      else if (!least || value < least.value) least = { value, x, y };
      if (Number.isFinite(value) && (!most || value > most.value)) most = { value, x, y };
    });
  });
  const at = ({ x, y }) => `in ${fullName(sites[y])} at step ${number(starts[x])}`;
  if (!least && !odd) return "Nothing was read in these steps.";
  const lowestAndHighest = least ? `Lowest ${number(least.value)} ${at(least)}, highest ${number(most.value)} ${at(most)}.` : "";
  return `${sites.length} ${sites.length === 1 ? "row" : "rows"}, steps ${number(starts[0])} to ${number(ends[ends.length - 1])}. ${lowestAndHighest}${odd ? ` Not finite first ${at(odd)}.` : ""}`;
}

export function tableOfHeat({ sites, values, starts }) {
  return { columns: ["step", ...sites.map((site) => site.name || "whole model")], rows: starts.map((step, x) => [step, ...values.map((line) => line[x])]) };
}
