// Curves and layer-by-step pictures.

import { number, place, SEVERITIES } from "./words.js";

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const NOT_FINITE = "#ff2d95";
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const safe = (text) => echarts.format.encodeHTML(String(text));

export function chart(element) {
  const made = echarts.init(element, null, { renderer: "canvas" });
  new ResizeObserver(() => made.resize()).observe(element);
  return made;
}

const axis = () => ({
  axisLine: { lineStyle: { color: css("line") } },
  axisLabel: { color: css("faint"), hideOverlap: true },
  splitLine: { lineStyle: { color: css("line"), opacity: 0.6 } },
});
const tooltip = () => ({ backgroundColor: css("panel"), borderColor: css("line"), textStyle: { color: css("text"), fontSize: 12 }, confine: true });

// A point stands for several steps: down to its lowest and up to its highest value, so that no spike is lost.
function points({ steps, lines }) {
  const line = lines[0];
  if (!line) return [];
  return steps.flatMap((step, i) => {
    const [low, high] = [line.low[i], line.high[i]].map((value) => (value === null || !Number.isFinite(Number(value)) ? null : value));
    return low === high || high === null ? [[step, low]] : [[step, low], [step, high]];
  });
}

function marks(alerts) {
  const worst = new Map();
  for (const { state, step, severity } of alerts) {
    const rank = SEVERITIES.indexOf(severity);
    if (state === "raised" && rank > SEVERITIES.indexOf(worst.get(step))) worst.set(step, severity);
  }
  const data = [...worst].map(([step, severity]) => ({
    xAxis: step,
    lineStyle: { color: css(severity), type: "solid", width: 1.5 },
    label: { formatter: `${severity} at ${number(step)}`, color: css(severity), position: "insideEndTop", fontSize: 11 },
  }));
  return { silent: true, symbol: "none", data };
}

// curves: [{ name, color, dashed, series }], drawn over the steps.
export function drawCurves(target, curves, alerts, { unit = "", log = false, range } = {}) {
  const data = curves.map(({ name, color, dashed, series }, i) => ({
    name,
    type: "line",
    data: log ? points(series).map(([step, value]) => [step, value > 0 ? value : null]) : points(series),
    showSymbol: series.steps.length < 3 || (name === "evaluation" && series.steps.length < 60),
    symbolSize: 5,
    color: css(color),
    z: dashed ? 2 : 3,
    lineStyle: { width: dashed ? 1.3 : 2, type: dashed ? "dashed" : "solid" },
    animation: false,
    connectNulls: name === "evaluation",
    markLine: i === 0 ? marks(alerts) : undefined,
  }));
  target.setOption(
    {
      grid: { left: 8, right: 28, top: curves.length > 1 ? 36 : 16, bottom: 24, containLabel: true },
      legend: { show: curves.length > 1, type: "scroll", top: 0, textStyle: { color: css("text") }, itemWidth: 18 },
      tooltip: { ...tooltip(), trigger: "axis", formatter: (rows) => curveText(rows, unit) },
      xAxis: { ...axis(), type: "value", min: range?.[0] ?? "dataMin", max: range?.[1] ?? "dataMax", name: "step", nameLocation: "middle", nameGap: 24, nameTextStyle: { color: css("faint") }, splitLine: { show: false } },
      yAxis: { ...axis(), type: log ? "log" : "value", scale: true, axisLabel: { color: css("faint"), formatter: number } },
      series: data,
    },
    true,
  );
}

function curveText(rows, unit) {
  const values = new Map();
  for (const { seriesName, value, color } of rows) {
    const known = values.get(seriesName) ?? { color, all: [] };
    known.all.push(value[1]);
    values.set(seriesName, known);
  }
  const lines = [...values].map(([name, { all }]) => `${safe(name)}: ${[...new Set(all)].map(number).join(" … ")} ${safe(unit)}`);
  return [`step ${number(rows[0].value[0])}`, ...lines].join("<br>");
}

// A matrix of `/layers`; the colour is logarithmic. What was not read in a cell keeps the colour of the reading before.
export function drawLayers(target, { steps, sites, values, width, unit }) {
  const cells = [];
  let [least, most] = [Infinity, -Infinity];
  for (const value of values.flat()) {
    if (value > 0 && Number.isFinite(Number(value))) [least, most] = [Math.min(least, value), Math.max(most, value)];
  }
  values.forEach((line, y) => {
    let held = null;
    line.forEach((value, x) => {
      held = value ?? held;
      if (held === null) return;
      const finite = Number.isFinite(Number(held));
      const colour = Math.log10(Math.max(Number(held), least));
      cells.push(finite ? [x, y, colour, held] : { value: [x, y, Math.log10(most), held], itemStyle: { color: NOT_FINITE } });
    });
  });
  const [low, high] = least <= most ? [Math.log10(least), Math.log10(most)] : [0, 1];
  const category = { ...axis(), type: "category", splitLine: { show: false }, axisTick: { show: false } };
  target.setOption(
    {
      grid: { left: 8, right: 12, top: 8, bottom: 44, containLabel: true },
      tooltip: { ...tooltip(), formatter: ({ value }) => cellText(sites[value[1]], steps[value[0]], width, value[3], unit) },
      xAxis: { ...category, data: steps.map(number), axisLabel: { color: css("faint"), hideOverlap: true } },
      yAxis: { ...category, data: sites.map((site, i) => `${i} ${site.name}`), axisLabel: { color: css("faint"), fontSize: 10, hideOverlap: true, formatter: (_, i) => place(sites[i]) } },
      visualMap: {
        min: low, max: high > low ? high : low + 1e-6, dimension: 2, orient: "horizontal", left: "center", bottom: 0, itemWidth: 10, itemHeight: 130,
        inRange: { color: VIRIDIS }, text: [number(10 ** high), number(10 ** low)], textStyle: { color: css("faint"), fontSize: 11 }, precision: 6, hoverLink: false,
      },
      series: [{ type: "heatmap", data: cells, animation: false, progressive: 0, emphasis: { disabled: true } }],
    },
    true,
  );
}

function cellText(site, step, width, value, unit) {
  const span = width > 1 ? `steps ${number(step)} to ${number(step + width - 1)}, highest` : `step ${number(step)}`;
  const layer = site.layer === null ? "" : `layer ${site.layer}, `;
  return `${safe(layer + site.name)}<br>${span}: <b>${number(value)}</b> ${unit === "1" ? "" : safe(unit)}`;
}
