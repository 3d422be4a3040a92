// One run: verdict, numbers, curves, layer-by-step pictures, alerts.

import { follow, get, Refused } from "./api.js";
import { alertCards, eventLines } from "./alerts.js";
import { chart, drawCurves, drawLayers } from "./charts.js";
import { find, make, show } from "./dom.js";
import { failed } from "./main.js";
import { capital, clock, duration, number, percent, symbol } from "./words.js";

const LOSSES = [
  ["loss", "loss", "loss", false],
  ["eval_loss", "evaluation", "info", false],
  ["bigram_loss", "bigram", "bigram", true],
  ["unigram_loss", "unigram", "unigram", true],
  ["uniform_loss", "uniform", "uniform", true],
];
const PICTURES = [
  ["norm_input_msq", "Length of every norm's input"],
  ["norm_gain", "Gain of every norm"],
  ["grad_norm", "Gradient of every block"],
  ["output_change_ratio", "How far each block's update moves the output"],
];
const BASELINES = "Dashed, what a model scores that sees one token of context (bigram), knows how common each token is (unigram), or guesses evenly (uniform).";
const NAMES = { context_share: "position-dependent output" };
// Seconds between redrawings: the server does its work in the training process.
const EVERY = { summary: 1, alerts: 2, curves: 2, pictures: 5, still: 10 };

export async function showRun(id, live) {
  const view = { id, live, range: undefined, due: new Set(), lost: 0, alerts: [] };
  view.summary = await get("run", { run: id });
  build(view);
  render(view);
  follow(id, {
    rows: () => ["summary", "curves", "pictures", "alerts"].forEach((part) => view.due.add(part)),
    found: () => (view.lost = 0),
    lost: () => (view.lost ||= Date.now() / 1000),
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw(view));
  await work(view);
  setInterval(() => work(view).catch(() => (view.lost ||= Date.now() / 1000)), 500);
}

const names = ({ summary }) => summary.statistics.map((statistic) => statistic.name).join();

function build(view) {
  const { statistics } = view.summary;
  view.panels?.forEach(({ made }) => made.chart.dispose());
  view.built = names(view);
  view.at = {};
  ["curves", "pictures", "alerts"].forEach((part) => view.due.add(part));
  const has = new Set(statistics.map((statistic) => statistic.name));
  view.verdict = make("section", { class: "verdict", role: "status" });
  view.tiles = make("dl", { class: "tiles" });
  view.alertList = make("div", { id: "alerts" });
  view.eventList = make("ul", { class: "events" });
  view.panels = [];
  const charts = make("section", { class: "charts" });
  charts.append(panel(view, "Loss, in nats", { wide: true, draw: drawLosses, ranges: true, help: has.has("unigram_loss") ? BASELINES : "" }));
  if (statistics.length > 0) charts.append(panel(view, "Over the steps", { wide: true, draw: drawStatistic, choice: statistics.filter((s) => !s.per_layer && !s.name.endsWith("loss")), chosen: "context_share" }));
  for (const [statistic, title] of PICTURES.filter(([name]) => has.has(name))) {
    charts.append(panel(view, title, { draw: drawPicture, statistic, help: statistics.find((s) => s.name === statistic).help }));
  }
  const others = statistics.filter((s) => s.per_layer && !PICTURES.some(([name]) => name === s.name));
  if (others.length > 0) charts.append(panel(view, "Layer by layer", { wide: true, draw: drawPicture, choice: others, chosen: "token_similarity" }));
  const heading = (text) => make("h2", {}, text);
  show(view.verdict, view.tiles, heading("Alerts"), view.alertList, make("p", {}), charts, heading("Events"), view.eventList);
  for (const { element, made } of view.panels) made.chart = chart(element);
}

function panel(view, title, made) {
  const element = make("div", { class: "chart", role: "img", "aria-label": title });
  const bar = make("div", { class: "bar" }, make("h2", {}, title));
  if (made.choice) {
    made.statistic = (made.choice.find((s) => s.name === made.chosen) ?? made.choice[0])?.name;
    const options = made.choice.map((s) => make("option", { value: s.name, selected: s.name === made.statistic }, NAMES[s.name] ?? s.name.replaceAll("_", " ")));
    const choose = (event) => ((made.statistic = event.target.value), redraw(view));
    bar.append(make("select", { onchange: choose, "aria-label": "statistic" }, ...options));
  }
  if (made.ranges) bar.append((view.ranges = make("span")));
  view.panels.push({ element, made });
  made.note = make("p", {}, made.help ?? "");
  return make("div", { class: made.wide ? "panel wide" : "panel" }, bar, made.note, element);
}

function redraw(view) {
  view.due.add("curves").add("pictures");
  view.at = {};
  return work(view);
}

// Does what is due and not too soon. One at a time.
async function work(view) {
  if (view.busy || document.hidden) return freshness(view);
  view.busy = true;
  const now = Date.now() / 1000;
  try {
    const late = (part) => now - (view.at[part] ?? 0) >= EVERY[part];
    const still = now - (view.at.summary ?? 0) >= EVERY.still && view.summary.state === "running";
    if ((view.due.has("summary") && late("summary")) || still) {
      start(view, "summary", now);
      view.summary = await get("run", { run: view.id });
      if (names(view) !== view.built) build(view); // a run that has just begun, or whose model changed
      render(view);
    }
    if (view.due.has("alerts") && late("alerts")) {
      start(view, "alerts", now);
      await showAlerts(view);
    }
    for (const part of ["curves", "pictures"]) {
      if (view.due.has(part) && late(part)) {
        start(view, part, now);
        await Promise.all(view.panels.filter(({ made }) => (made.draw === drawPicture) === (part === "pictures")).map(({ made }) => made.draw(view, made)));
      }
    }
    if (Object.values(view.at).includes(now)) view.lost = 0;
  } catch (error) {
    if (error instanceof Refused) failed(error);
    throw error;
  } finally {
    view.busy = false;
    freshness(view);
  }
}

function start(view, part, now) {
  view.due.delete(part);
  view.at[part] = now;
}

async function showAlerts(view) {
  const [{ alerts }, { events }] = await Promise.all([get("alerts", { run: view.id }), get("events", { run: view.id })]);
  if (JSON.stringify(alerts) !== JSON.stringify(view.alerts) || view.alertList.childElementCount === 0) {
    view.alerts = alerts;
    view.alertList.replaceChildren(...alertCards(alerts));
  }
  view.eventList.replaceChildren(...(events.length ? eventLines(events) : [make("li", {}, "none")]));
}

function render(view) {
  const { name, state, verdict, framework, model, version, started } = view.summary;
  document.title = `${symbol[verdict.level]} ${name} · stabmon`;
  find("name").textContent = name;
  Object.assign(find("state"), { textContent: state, hidden: false });
  find("about").textContent = `· ${model} (${framework}), started ${new Date(1000 * started).toLocaleString()}, stabmon ${version}`;
  view.verdict.className = `verdict ${verdict.level}`;
  view.verdict.replaceChildren(make("strong", {}, `${symbol[verdict.level]} ${verdict.title}`), make("p", {}, verdict.text));
  view.offset = view.summary.now - Date.now() / 1000;
  view.tiles.replaceChildren(...tiles(view.summary));
  view.ranges.replaceChildren(...ranges(view));
}

function tiles({ step, values, cost }) {
  const rows = [
    ["Step", number(step)],
    ["Loss", number(values.loss), "nats"],
    ["Position-dependent output", values.context_share === undefined ? "–" : percent(values.context_share)],
    ["Learning rate", number(values.learning_rate)],
    ["Gradient norm", number(values.total_grad_norm)],
    ["Step time", duration(values.step_seconds)],
    ["stabmon's own time", percent(cost.recent_ratio), `${duration(cost.recent_seconds)} a step; whole run ${percent(cost.total_ratio)}`],
  ];
  return rows.map(([title, value, unit]) => make("div", { class: "tile" }, make("dt", {}, title), make("dd", {}, `${value} `, make("small", {}, unit ?? ""))));
}

function ranges(view) {
  const { first_step: first, step: last } = view.summary;
  const lengths = [undefined, 10000, 1000, 100].filter((length) => length === undefined || last - first > 1.5 * length);
  if (lengths.length === 1) return [];
  return lengths.map((length) => {
    const choose = () => ((view.range = length), render(view), redraw(view));
    return make("button", { type: "button", "aria-pressed": String(view.range === length), onclick: choose }, length ? `last ${number(length)}` : "whole run");
  });
}

const bounds = (view) => (view.range ? { from: Math.max(1, view.summary.step - view.range + 1) } : {});

const span = (view) => [bounds(view).from ?? view.summary.first_step, view.summary.step];

async function drawLosses(view, made) {
  const has = new Set(view.summary.statistics.map((statistic) => statistic.name));
  const wanted = LOSSES.filter(([name]) => has.has(name));
  const series = await Promise.all(wanted.map(([name]) => get("series", { run: view.id, statistic: name, points: 500, ...bounds(view) })));
  const curves = wanted.map(([, name, color, dashed], i) => ({ name, color, dashed, series: series[i] }));
  drawCurves(made.chart, curves.filter(({ series: found }) => found.steps.length > 0), inRange(view), { unit: "nats", range: span(view) });
}

async function drawStatistic(view, made) {
  if (!made.statistic) return;
  const series = await get("series", { run: view.id, statistic: made.statistic, points: 500, ...bounds(view) });
  made.note.textContent = series.unit === "1" ? series.help : `${series.help} Unit: ${series.unit}.`;
  const positive = series.lines.some((line) => line.low.some((value) => value > 0));
  const negative = series.lines.some((line) => line.low.some((value) => value < 0));
  const name = NAMES[made.statistic] ?? made.statistic;
  drawCurves(made.chart, [{ name, color: "loss", series }], inRange(view), { unit: series.unit === "1" ? "" : series.unit, log: positive && !negative, range: span(view) });
}

async function drawPicture(view, made) {
  const layers = await get("layers", { run: view.id, statistic: made.statistic, points: made.wide ? 160 : 100, ...bounds(view) });
  made.note.textContent = layers.help;
  made.chart.getDom().style.height = `${Math.min(420, Math.max(180, 90 + 13 * layers.sites.length))}px`;
  made.chart.resize();
  drawLayers(made.chart, layers);
}

const inRange = (view) => view.alerts.filter((alert) => alert.step >= (bounds(view).from ?? 0));

// Old numbers must not look new: says how old they are, and dims them once that is too old.
function freshness(view) {
  const { summary, lost } = view;
  const age = Math.max(0, Date.now() / 1000 + view.offset - (summary.time || summary.started));
  const stale = summary.state === "running" && age > summary.silent_after;
  const over = summary.state !== "running";
  document.body.classList.toggle("stale", (Boolean(lost) && !over) || stale);
  const place = find("freshness");
  place.className = lost && !over ? "lost" : "";
  if (lost && !over) {
    const after = view.live ? " The training may have ended; stabmon serve shows its run log." : "";
    place.textContent = `Connection lost at ${clock(lost)}; what you see is older.${after}`;
  } else if (summary.state === "running") place.textContent = !summary.time ? "no step yet" : stale ? `no data for ${duration(Math.round(age))}` : `last step ${duration(Math.round(age))} ago`;
  else place.textContent = `${capital(summary.state)} ${new Date(1000 * summary.time).toLocaleString()}`;
}
