// The detectors: their scores over time, and what each of them looks at.

import { get } from "./api.js";
import { lineOf } from "./curves.js";
import { make } from "./dom.js";
import { CURVES, HEAT, heightOf } from "./figures.js";
import { prepared } from "./heat.js";
import { asked, span } from "./span.js";
import { colour } from "./theme.js";
import { number, plain, symbol } from "./words.js";

const MOST_LINES = 3;
// Blues below the alert line, then orange to red: told apart without red and green.
const SCORES = { list: ["#dbe4ee", "#c2d3e6", "#9dbbd9", "#6a97c4", "#3f73ab", "#f2b134", "#e07b1f", "#c4401f", "#8e1b1b"], low: 0.05, high: 10 };
const STATES = { quiet: ["✓", "quiet", "healthy"], alert: ["!", "alert", "warning"], muted: ["–", "muted", "silent"], cannot_run: ["?", "cannot see", "silent"], failed: ["✖", "failed", "critical"] };

const scoresOf = (view) => get("scores", { run: view.id, points: 300, ...asked(view) });

export function scoreFigures(view) {
  if (!view.judges.recorded) return [];
  const names = view.judges.detectors.filter(({ state }) => state !== "cannot_run").map(({ name }) => name);
  const fetch = async () => {
    const { steps, lines } = await scoresOf(view);
    const starts = steps.map((_, i) => (i ? steps[i - 1] + 1 : steps[0]));
    const order = names.filter((name) => lines.some(({ site }) => site.name === name)).reverse();
    const found = order.map((name) => lines.find(({ site }) => site.name === name));
    const sites = order.map((name) => ({ name, layer: null, role: plain(name) }));
    return prepared({ starts, ends: steps, sites, values: found.map(({ high }) => high), unit: "" }, SCORES);
  };
  const choose = (detector) => view.change({ detector: view.state.detector === detector ? undefined : detector }, "score-lines");
  const rows = { rows: true, chosenIn: () => view.state.detector, click: (_, panel, { row }) => choose(panel.data.sites[row]?.name), pick: (_, panel, key) => nextJudge(view, panel, key) };
  return [
    { key: "scores", title: "Detectors' scores over time", help: "Blue: below the alert line, which is 1. Orange to red: above it. Click a detector to see its line.", height: heightOf(names.length), left: 118, kind: HEAT, every: 3, fetch, ...rows },
    { key: "score-lines", title: "Scores of the chosen, or the highest", help: "1 is the alert line; an alert also needs some time above it.", height: heightOf(names.length), kind: CURVES, logarithmic: true, every: 3, fetch: () => highestLines(view) },
  ];
}

async function highestLines(view) {
  const scores = await scoresOf(view);
  const [begin, end] = span(view);
  const highest = ({ high }) => Math.max(...high.filter((value, i) => value !== null && scores.steps[i] >= begin && scores.steps[i] <= end).map(Number));
  const chosen = scores.lines.filter(({ site }) => site.name === view.state.detector);
  const shown = chosen.length ? chosen : [...scores.lines].sort((a, b) => highest(b) - highest(a)).slice(0, MOST_LINES);
  return { lines: shown.map((line, i) => lineOf(scores, line, { name: plain(line.site.name), colour: colour(`line${i}`) })), unit: "", atOne: true };
}

function nextJudge(view, panel, key) {
  const { sites } = panel.data;
  const at = sites.findIndex(({ name }) => name === view.state.detector);
  const next = key === "ArrowUp" ? at + 1 : at < 0 ? sites.length - 1 : at - 1;
  if (key !== "Enter" && sites[next]) view.change({ detector: sites[next].name }, "score-lines");
}

export function judgeTable({ detectors }) {
  const head = ["Detector", "Now", "Score", "What it warns of"].map((text, i) => make("th", { scope: "col", class: i === 2 ? "number" : "" }, text));
  return make("table", { class: "judges" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...detectors.map(judgeRow)));
}

function judgeRow({ name, title, runbook, state, severity, since, score, reason, missing }) {
  const [sign, word, level] = state === "alert" ? [symbol[severity], `${severity} since step ${number(since)}`, severity] : STATES[state];
  const why = reason || (missing.length ? `not read here: ${missing.map(plain).join(", ")}` : "");
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, runbook ? make("a", { href: runbook }, plain(name)) : plain(name)),
    make("td", { class: `word ${level}` }, `${sign} ${word}`),
    make("td", { class: "number" }, number(score)),
    make("td", {}, title, why ? make("small", {}, ` ${why}`) : ""),
  );
}
