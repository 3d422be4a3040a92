// The charts of a run: what each shows, and what it asks for.

import { fileOf, get } from "./api.js";
import { lineOf, paintCurves, readCurves, tableOfCurves, wordsOfCurves } from "./curves.js";
import { make } from "./dom.js";
import { paintHeat, prepared, readHeat, tableOfHeat, wordsOfHeat } from "./heat.js";
import { scaleChips } from "./legend.js";
import { chosenName, neighbours, remember, sitesOf } from "./sites.js";
import { asked } from "./span.js";
import { colour } from "./theme.js";
import { place, plain } from "./words.js";

export const CURVES = { paint: paintCurves, read: readCurves, words: wordsOfCurves, table: tableOfCurves };
export const HEAT = { paint: paintHeat, read: readHeat, words: wordsOfHeat, table: tableOfHeat, scale: scaleChips };

// name -> how it is drawn.
const LOSSES = {
  loss: { name: "loss", paint: "loss" },
  eval_loss: { name: "evaluation", paint: "evaluation", dots: true },
  bigram_loss: { name: "bigram baseline", paint: "bigram", dashed: true },
  unigram_loss: { name: "unigram baseline", paint: "unigram", dashed: true },
  uniform_loss: { name: "uniform baseline", paint: "uniform", dashed: true },
};
const PICTURES = {
  norm_input_msq: "Length of every norm's input",
  norm_gain: "Gain of every norm",
  grad_norm: "Gradient of every block",
  output_change_ratio: "How far each block's update moves the output",
};
const BASELINES = "Dashed, what a model scores that sees one token of context (bigram), knows how common each token is (unigram), or guesses evenly (uniform).";

export const has = (view, name) => view.summary.statistics.some((statistic) => statistic.name === name);
export const about = (view, name) => view.summary.statistics.find((statistic) => statistic.name === name);
const unitOf = (unit) => (unit === "1" ? "" : unit);

// Every row of what a chart shows, where there is a server that has them.
const fileFor = (statistics) => (view, panel) => {
  const { from, to } = asked(view);
  const address = fileOf("export.csv", { run: view.id, statistic: statistics(panel), from, to });
  return address && new URL(address, location.href);
};

async function curvesOf(view, statistics, points = 500) {
  if (statistics.length === 0) return [];
  return (await get("curves", { run: view.id, statistic: statistics, points, ...asked(view) })).curves;
}

export function lossFigure(view) {
  const wanted = Object.keys(LOSSES).filter((name) => has(view, name));
  const fetch = async () => {
    const [own, ...others] = await Promise.all([curvesOf(view, wanted, 800), ...view.others.map(({ id }) => get("curves", { run: id, statistic: ["loss"], points: 500, ...asked(view) }))]);
    const style = ({ name, paint, ...how }) => ({ ...how, name: view.others.length && name === "loss" ? `loss of ${view.summary.name}` : name, colour: colour(paint) });
    const lines = own.filter(({ lines: [line] }) => line).map((series) => lineOf(series, series.lines[0], style(LOSSES[series.statistic])));
    const beside = others.flatMap(({ curves: [series] }, i) => series.lines.map((line) => lineOf(series, line, { name: view.others[i].name, colour: colour(`other${i % 4}`) })));
    return { lines: [...lines, ...beside], unit: "nats" };
  };
  return { key: "loss", title: "Loss, in nats", help: has(view, "unigram_loss") ? BASELINES : "", wide: true, height: 280, logarithmic: false, kind: CURVES, fetch, every: 2, file: fileFor(() => wanted) };
}

// Whole-model statistics in one chart: { statistic: name on screen }.
export function curvesFigure(view, key, title, names, more) {
  const wanted = Object.keys(names).filter((name) => has(view, name));
  const fetch = async () => {
    const found = await curvesOf(view, wanted);
    const lines = found.flatMap((series, i) => series.lines.map((line) => lineOf(series, line, { name: names[series.statistic], colour: colour(`line${i}`) })));
    const beside = wanted.length === 1 ? await Promise.all(view.others.map(({ id }) => get("curves", { run: id, statistic: wanted, points: 500, ...asked(view) }))) : [];
    const theirs = beside.flatMap(({ curves: [series] }, i) => series.lines.map((line) => lineOf(series, line, { name: view.others[i].name, colour: colour(`other${i % 4}`) })));
    return { lines: [...lines, ...theirs], unit: unitOf(found[0]?.unit ?? "1"), atOne: more.atOne };
  };
  return wanted.length ? [{ key, title, kind: CURVES, fetch, every: 3, file: fileFor(() => wanted), ...more }] : [];
}

async function layersOf(view, statistic, points) {
  const found = await get("layers", { run: view.id, statistic, points, ...asked(view) });
  remember(view, found.sites);
  const ends = found.steps.map((step) => step + found.width - 1);
  return prepared({ starts: found.steps, ends, sites: found.sites, values: found.values, unit: unitOf(found.unit) });
}

export const heightOf = (rows) => Math.min(440, Math.max(190, 40 + 12 * rows));

function pickRow(view, panel, key) {
  const { sites } = panel.data;
  const at = sites.findIndex(({ name }) => name === panel.chosenIn(view, panel.data));
  const next = key === "ArrowUp" ? at + 1 : key === "ArrowDown" ? (at < 0 ? sites.length - 1 : at - 1) : at;
  if (sites[next]) view.change({ layer: sites[next].name });
}

const layerPicked = { rows: true, chosenIn: chosenName, rowOf: rowOfChosen, pick: pickRow, click: (view, panel, { row }) => view.change({ layer: panel.data.sites[row]?.name }) };

function rowOfChosen(view, data) {
  const at = data.sites.findIndex(({ name }) => name === chosenName(view, data));
  return at < 0 ? null : at;
}

export function pictureFigures(view) {
  return Object.entries(PICTURES).filter(([name]) => has(view, name)).map(([statistic, title]) => ({
    key: statistic, title, help: about(view, statistic).help, height: heightOf(about(view, statistic).sites), kind: HEAT, every: 5,
    fetch: () => layersOf(view, statistic, 160), file: fileFor(() => [statistic]), ...layerPicked,
  }));
}

// A statistic of choice, kept in the address under `key`.
export function chooser(view, key, names, otherwise) {
  const chosen = () => (names.includes(view.state[key]) ? view.state[key] : names.includes(otherwise) ? otherwise : names[0]);
  const options = names.map((name) => make("option", { value: name, selected: name === chosen() }, plain(name)));
  const select = make("select", { "aria-label": "what is shown", onchange: (event) => view.change({ [key]: event.target.value }, [key]) }, ...options);
  return { chosen, select };
}

export function anyPicture(view) {
  const names = view.summary.statistics.filter((s) => s.per_layer && !PICTURES[s.name]).map((s) => s.name);
  if (names.length === 0) return [];
  const { chosen, select } = chooser(view, "picture", names, "token_similarity");
  const height = heightOf(Math.max(...names.map((name) => about(view, name).sites)));
  const fetch = async (_, panel) => {
    panel.note.textContent = about(view, chosen()).help;
    return layersOf(view, chosen(), 160);
  };
  return [{ key: "picture", title: "Another statistic, layer by layer", height, kind: HEAT, every: 5, fetch, choices: [select], help: about(view, chosen()).help, file: fileFor(() => [chosen()]), ...layerPicked }];
}

export function anyCurve(view) {
  const names = view.summary.statistics.filter((s) => !s.per_layer && !LOSSES[s.name]).map((s) => s.name);
  if (names.length === 0) return [];
  const { chosen, select } = chooser(view, "curve", names, "total_grad_norm");
  const fetch = async (_, panel) => {
    const runs = [{ id: view.id, name: plain(chosen()), colour: "line0" }, ...view.others.map((other, i) => ({ ...other, colour: `other${i % 4}` }))];
    const found = await Promise.all(runs.map(({ id }) => get("curves", { run: id, statistic: [chosen()], points: 500, ...asked(view) })));
    panel.note.textContent = about(view, chosen()).help;
    const lines = found.flatMap(({ curves: [series] }, i) => series.lines.map((line) => lineOf(series, line, { name: runs[i].name, colour: colour(runs[i].colour) })));
    return { lines, unit: unitOf(about(view, chosen()).unit) };
  };
  return [{ key: "curve", title: "Any number over the steps", height: 230, kind: CURVES, every: 3, fetch, logarithmic: false, choices: [select], help: about(view, chosen()).help, file: fileFor(() => [chosen()]) }];
}

// The chosen layer between its two neighbours, one chart for each of the four signals.
export function layerFigures(view) {
  return Object.entries(PICTURES).filter(([name]) => has(view, name)).map(([statistic, title]) => {
    const fetch = async () => {
      const near = neighbours(view, await sitesOf(view, statistic));
      const names = near.filter(Boolean).map(({ name }) => name);
      if (names.length === 0) return { lines: [], unit: "" };
      const series = await get("series", { run: view.id, statistic, site: names, points: 400, ...asked(view) });
      const style = (name) => (near[1]?.name === name ? { colour: colour("line0"), dashed: false } : { colour: colour(near[0]?.name === name ? "line1" : "line2"), dashed: true });
      const shown = series.lines.filter(({ site }) => names.includes(site.name));
      return { lines: shown.map((line) => lineOf(series, line, { ...style(line.site.name), name: place(line.site) })), unit: unitOf(series.unit) };
    };
    return { key: `layer-${statistic}`, title, height: 190, kind: CURVES, every: 5, fetch, logarithmic: true, layered: true };
  });
}

