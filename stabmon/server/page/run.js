// One run: builds the page from what the run has, and keeps it as new as the run is.

import { follow, get, Refused, served } from "./api.js";
import { alertCards, eventLines } from "./alerts.js";
import { find, make, show } from "./dom.js";
import { factsOf } from "./facts.js";
import { changed, readFragment } from "./fragment.js";
import { gesturesOn } from "./gestures.js";
import { judgeTable } from "./judges.js";
import { marksOf } from "./marks.js";
import { paint } from "./panel.js";
import { bringIntoView, chartSections, titled } from "./sections.js";
import { remember, sitesOf } from "./sites.js";
import { clockOf } from "./span.js";
import { freshness, heading, tilesOf, verdictOf } from "./summary.js";
import { watchTheme } from "./theme.js";
import { compareOf, pressed, toldToolbar, toolbarOf } from "./toolbar.js";
import { plain } from "./words.js";

// Seconds between two askings: the server may do its work in the training process.
const EVERY = { summary: 1, alerts: 2, judges: 3, still: 10 };
const LOOK = 500;
// A report has all that it shows, and what is printed is drawn before.
const EVERYTHING = "100000px";
// Milliseconds between two tries to reach a server that is gone.
const RETRY = 3000;

export async function showRun(id, { live, runs, beside }) {
  const view = { id, live, state: readFragment(), alerts: [], events: [], marks: [], others: named(runs, beside), panels: [], places: new Map(), sites: new Map(), due: new Set(), at: {}, lost: 0 };
  Object.assign(view, { change: (changes, ...keys) => change(view, changes, keys), gestures: gesturesOn, key: (key) => pressed(view, key), told: toldToolbar, show: (alert, begin, end) => showIncident(view, alert, begin, end) });
  Object.assign(view, { take: (alerts) => (takeAlerts(view, alerts), showAlerts(view, null)), beside: (others) => besides(view, others) });
  const [alerts] = await Promise.all([askAlerts(view), readSummary(view), askJudges(view)]);
  Object.assign(view, { alerts, marks: marksOf(alerts, view.events) });
  view.compare = live || !served ? "" : compareOf(view, runs);
  build(view);
  performance.mark("verdict shown");
  watchTheme(find("theme"), () => repaint(view));
  addEventListener("hashchange", () => ((view.state = readFragment()), stale(view)));
  follow(id, { rows: ({ step }) => ((view.gone = undefined), news(view, step)), gone: (why) => goneBecause(view, why), found: () => ((view.lost = 0), (view.why = undefined), news(view)), lost: () => lose(view) });
  await work(view);
  setInterval(() => work(view), LOOK);
}

const named = (runs, ids) => ids.map((id) => runs.find((run) => run.id === id)).filter(Boolean);
const signature = ({ summary }) => summary.statistics.map(({ name, sites }) => `${name}:${sites}`).join();

async function readSummary(view) {
  view.summary = await get("run", { run: view.id });
  view.read = performance.now();
  view.at.summary = Date.now() / 1000;
}

async function askJudges(view) {
  view.judges = await get("detectors", { run: view.id });
}

function build(view) {
  Object.assign(view, { built: signature(view), verdictTold: undefined, factsShown: undefined });
  view.panels.forEach((panel) => panel.chart?.dispose());
  view.panels = [];
  view.sites.clear();
  Object.assign(view, { verdict: make("section", { class: "verdict", role: "status" }), trouble: make("p", { class: "trouble", role: "alert", hidden: true }), tiles: make("dl", { class: "tiles" }) });
  Object.assign(view, { alertList: make("div", { id: "alerts" }), eventList: make("ul", { class: "events" }), judgeBox: make("div", { class: "panel wide-table", tabindex: 0, role: "region", "aria-label": "Table of detectors" }), facts: make("div", { class: "charts" }) });
  show(view.trouble, view.verdict, view.tiles, titled("Alerts", view.alertList), toolbarOf(view), ...chartSections(view), titled("Detectors", view.judgeBox), titled("Events", view.eventList), titled("This run", view.facts));
  watch(view);
  view.at = { summary: view.at.summary, judges: view.at.summary, alerts: view.at.summary };
  render(view);
  showAlerts(view);
  view.eventList.replaceChildren(...eventLines(view.events));
  showJudges(view);
}

// Only what is on the screen, or nearly, is asked for and drawn.
function watch(view) {
  view.watcher?.disconnect();
  view.watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) view.panels.find(({ figure }) => figure === target).seen = isIntersecting;
    work(view);
  }, { rootMargin: served ? "300px" : EVERYTHING });
  view.panels.forEach(({ figure }) => view.watcher.observe(figure));
}

function news(view, step) {
  // A step that came while the page was looked at is new, whatever the clocks say.
  if (step > view.newest) view.came = performance.now();
  view.newest = step ?? view.newest;
  for (const part of ["summary", "alerts", "judges"]) view.due.add(part);
  view.panels.forEach((panel) => (panel.due = true));
}

// The server is there, and the run log is not, or cannot be read. News of it end that.
function goneBecause(view, why) {
  view.gone = { since: view.gone?.since ?? Date.now() / 1000, why };
  freshness(view);
}

// The connection went: says why, if the server can still be asked.
async function lose(view) {
  view.lost ||= Date.now() / 1000;
  if (performance.now() - (view.tried ?? -Infinity) < RETRY) return freshness(view);
  view.tried = performance.now();
  try {
    await get("run", { run: view.id });
  } catch (error) {
    view.why = error instanceof Refused ? "The server asks for another token: it was started anew. Open the address that it printed (…/?token=…)." : error.status ? `The server says: ${error.message}.` : undefined;
  }
  freshness(view);
}

// Does what is due and not too soon. One at a time.
async function work(view) {
  if (view.busy || document.hidden || (view.lost && performance.now() - view.tried < RETRY)) return freshness(view);
  view.busy = true;
  const now = Date.now() / 1000;
  const late = (part) => Math.abs(now - (view.at[part] ?? 0)) >= EVERY[part];
  try {
    if ((view.due.delete("summary") && late("summary")) || (Math.abs(now - view.at.summary) >= EVERY.still && (view.gone || view.summary.state === "running") && served)) await refresh(view);
    await Promise.all([
      view.due.has("alerts") && late("alerts") ? readAlerts(view, now) : undefined,
      view.due.has("judges") && late("judges") ? readJudges(view, now) : undefined,
      view.gone ? undefined : draw(view, now),
    ]);
  } catch (error) {
    // A browser that cannot reach the server says so with a TypeError, each in words of its own; what else comes is ours.
    if (error instanceof Refused || (error instanceof TypeError && /fetch|network|load failed/i.test(error.message))) lose(view);
    else if (error.status !== undefined) goneBecause(view, error.message);
    else console.error(error);
  } finally {
    view.busy = false;
    freshness(view);
  }
}

async function refresh(view) {
  await readSummary(view);
  view.gone = undefined;
  if (signature(view) !== view.built) build(view); // a run that has just begun, or whose model changed
  render(view);
}

async function draw(view, now) {
  const wanted = view.panels.filter((panel) => panel.seen && panel.due && Math.abs(now - panel.at) >= panel.every && (!panel.layered || view.state.layer));
  const answers = wanted.map((panel) => {
    Object.assign(panel, { due: false, at: now });
    return panel.fetch(view, panel).then((data) => void (panel.data = data), (error) => refusedPanel(panel, error));
  });
  for (const [i, panel] of wanted.entries()) {
    const error = await answers[i];
    if (error) throw error;
    paintSafely(view, panel);
    // Between two charts the browser may do other things.
    await new Promise((resume) => setTimeout(resume));
  }
  if (wanted.length) {
    showLayer(view);
    performance.clearMarks("charts drawn"); // a page that is looked at for days keeps one
    performance.mark("charts drawn");
  }
}

// A chart that cannot be drawn must not take the others with it.
function paintSafely(view, panel) {
  try {
    paint(view, panel);
  } catch (error) {
    console.error(panel.key, error);
  }
}

// What the server says of one chart stands there; what concerns all is handed on.
function refusedPanel(panel, error) {
  panel.due = true;
  if (error.status === undefined) return error;
  panel.note.textContent = error.message;
  return undefined;
}

async function askAlerts(view) {
  const [{ alerts }, { events }, clock] = await Promise.all([get("alerts", { run: view.id }), get("events", { run: view.id }), get("series", { run: view.id, statistic: "loss", points: 400 })]);
  Object.assign(view, { clock: clockOf(clock), events });
  return alerts;
}

async function readAlerts(view, now) {
  view.due.delete("alerts");
  view.at.alerts = now;
  const alerts = await askAlerts(view);
  view.eventList.replaceChildren(...eventLines(view.events));
  takeAlerts(view, alerts);
}

function takeAlerts(view, alerts) {
  const marks = marksOf(alerts, view.events);
  const moved = JSON.stringify(marks) !== JSON.stringify(view.marks);
  view.marks = marks;
  if (JSON.stringify(alerts) !== JSON.stringify(view.alerts)) {
    view.alerts = alerts;
    showAlerts(view);
    for (const part of ["summary", "judges"]) view.due.add(part); // a mark changes the verdict
  }
  if (moved) repaint(view);
}

// A number that somebody is typing is not taken away, nor the button that is pressed next.
function showAlerts(view, typed = document.activeElement) {
  if (view.alertList.contains(typed) && typed.tagName === "INPUT") {
    typed.onblur = () => setTimeout(() => showAlerts(view), LOOK);
    return;
  }
  view.alertList.replaceChildren(...alertCards(view, view.alerts));
}

async function readJudges(view, now) {
  view.due.delete("judges");
  view.at.judges = now;
  const recorded = view.judges.recorded;
  await askJudges(view);
  if (view.judges.recorded !== recorded) return build(view);
  return showJudges(view);
}

const showJudges = (view) => view.judgeBox.replaceChildren(judgeTable(view.judges));

function render(view) {
  heading(view);
  verdictOf(view);
  view.tiles.replaceChildren(...tilesOf(view.summary));
  const { settings, environment, cost, rows } = view.summary;
  const told = JSON.stringify([settings, environment, cost, rows]);
  if (told !== view.factsShown) view.facts.replaceChildren(...factsOf(view.summary));
  view.factsShown = told;
  toldToolbar(view);
  showLayer(view);
}

function showLayer(view) {
  const { layer } = view.state;
  view.layerPart.hidden = layer === undefined;
  const site = view.places.get(layer);
  view.layerName.textContent = layer === undefined ? "" : `${site && site.layer !== null ? `Layer ${site.layer}: ` : ""}${layer}, beside its neighbours`;
}

// State, address and page; what was read is drawn again at once, and asked for anew.
function change(view, changes, keys) {
  view.state = changed(view.state, changes);
  toldToolbar(view);
  showLayer(view);
  if ("layer" in changes) view.said.textContent = `${view.shown.textContent}. ${view.layerName.textContent || "No layer is chosen"}.`;
  showAlerts(view);
  const onlyLooks = Object.keys(changes).every((name) => ["log", "smooth", "x", "alert"].includes(name));
  if (!onlyLooks) stale(view, keys);
  repaint(view);
}

function stale(view, keys = []) {
  const own = keys.length > 0;
  for (const panel of view.panels) if (!own || keys.includes(panel.key)) Object.assign(panel, { due: true, at: 0 });
  clearTimeout(view.soon);
  view.soon = setTimeout(() => work(view), 150);
}

// One chart a frame, so that the page keeps answering.
function repaint(view) {
  view.painting = view.panels.filter((panel) => panel.seen && panel.data);
  if (view.brush) return;
  const next = () => {
    const panel = view.painting.shift();
    view.brush = Boolean(panel);
    if (!panel) return;
    paintSafely(view, panel);
    requestAnimationFrame(next);
  };
  view.brush = true;
  requestAnimationFrame(next);
}

function showIncident(view, alert, begin, end) {
  if (alert.site) remember(view, [{ name: alert.site, layer: alert.layer, role: plain(alert.site) }]);
  change(view, { from: begin, to: end, last: undefined, alert: alert.id, layer: alert.site || undefined }, []);
  bringIntoView(view);
}

async function besides(view, others) {
  view.others = others;
  stale(view);
}
