// One statistic from the lowest layer to the highest: now, at the first step, at a step of interest, and the band at the start.

import { faintAxis, LEFT, plot, RIGHT, valueAxis } from "./axes.js";
import { fullName } from "./heat.js";
import { colour } from "./theme.js";
import { measured, number, place } from "./words.js";

const numbers = (values) => values.map((value) => (value === null || !Number.isFinite(Number(value)) ? null : Number(value)));

// data: { sites, unit, band, lines: [{ name, colour, dashed, values }] }.
function bandSeries({ low, high }) {
  const quiet = { type: "line", silent: true, animation: false, symbol: "none", lineStyle: { opacity: 0 } };
  const [begin, end] = [numbers(low), numbers(high)];
  const edges = end.map((value, i) => [i, begin[i], value]).filter(([, least, value]) => least !== null && value !== null);
  const renderItem = (params, api) => {
    if (params.dataIndex > 0) return undefined;
    const along = (at) => edges.map((edge) => api.coord([edge[0], edge[at]]));
    return { type: "polygon", shape: { points: [...along(2), ...along(1).reverse()] }, style: { fill: colour("healthy"), opacity: 0.16 } };
  };
  return { ...quiet, type: "custom", data: edges.slice(0, 1), renderItem, clip: true };
}

export function paintProfile(view, panel, { sites, band, lines }) {
  const all = [...lines.map(({ values }) => numbers(values)), ...(band ? [numbers(band.low), numbers(band.high)] : [])].flat().filter((value) => value !== null && (!panel.log || value > 0));
  const chosen = sites.findIndex(({ name }) => name === panel.chosenIn(view, { sites }));
  const mark = { silent: true, symbol: "none", animation: false, label: { show: false }, data: chosen < 0 ? [] : [{ xAxis: chosen, lineStyle: { color: colour("text"), type: "dotted" } }] };
  const series = lines.map((line) => ({
    type: "line", silent: true, animation: false, color: line.colour, symbolSize: 6, showSymbol: sites.length < 60,
    data: numbers(line.values).map((value) => (panel.log && !(value > 0) ? null : value)),
    lineStyle: { width: line.dashed ? 1.4 : 2, type: line.dashed ? "dashed" : "solid" },
  }));
  plot(panel, {
    grid: { left: LEFT, right: RIGHT, top: 10, bottom: 24 },
    xAxis: { ...faintAxis(), type: "category", data: sites.map((_, i) => String(i)), splitLine: { show: false }, axisLabel: { color: colour("faint"), fontSize: 10, hideOverlap: true, formatter: (_, i) => place(sites[i]) } },
    yAxis: valueAxis(Math.min(...all), Math.max(...all), panel.log),
    series: [...(band ? [bandSeries(band)] : []), ...series, { type: "line", data: [], markLine: mark }],
  });
}

export function readProfile({ sites, band, lines, unit }, index) {
  const at = index ?? null;
  const known = lines.map(({ name, colour: paint, dashed, values }) => ({ name, colour: paint, dashed, value: at === null ? "" : measured(values[at], unit) }));
  const range = band ? [{ name: "where such a model starts", colour: colour("healthy"), band: true, value: at === null ? "" : `${number(band.low[at])} to ${number(band.high[at])}` }] : [];
  return [...(at === null ? [] : [{ name: fullName(sites[at]), value: "" }]), ...known, ...range];
}

export function wordsOfProfile({ sites, band, lines }) {
  const now = lines[0];
  const values = now ? numbers(now.values) : [];
  const read = values.map((_, i) => i).filter((i) => values[i] !== null);
  if (read.length === 0) return "Nothing was read so far.";
  const [least, most] = [Math.min, Math.max].map((pick) => values.indexOf(pick(...read.map((i) => values[i]))));
  const odd = now.values.findIndex((value) => value !== null && !Number.isFinite(Number(value)));
  const outside = band ? read.filter((i) => values[i] > Number(band.high[i]) || values[i] < Number(band.low[i])).length : 0;
  return [
    `${now.name}: lowest ${number(values[least])} in ${fullName(sites[least])}, highest ${number(values[most])} in ${fullName(sites[most])}.`,
    band ? `${outside} of ${sites.length} lie outside the band of the start, which a healthy run may leave.` : "",
    odd < 0 ? "" : `Not finite in ${fullName(sites[odd])}.`,
  ].join(" ");
}

export function tableOfProfile({ sites, band, lines }) {
  const ends = band ? ["band from", "band to"] : [];
  return {
    columns: ["layer", ...lines.map(({ name }) => name), ...ends],
    rows: sites.map((site, i) => [fullName(site), ...lines.map(({ values }) => values[i]), ...(band ? [band.low[i], band.high[i]] : [])]),
  };
}
