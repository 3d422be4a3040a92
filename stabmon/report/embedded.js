// Stands for api.js in a report: answers come from the page itself, and nothing is asked for or sent.

const embedded = JSON.parse(document.getElementById("embedded").textContent);
for (const { series, layers, profile, scores } of Object.values(embedded.runs)) {
  for (const answer of [...[series, layers, profile].flatMap(Object.values), scores]) {
    for (const name of ["steps", "times", "sites"]) if (name in answer) answer[name] = embedded.pool[answer[name]];
  }
}
const lastOf = (steps, width, i) => (width === undefined ? steps[i] : steps[i] + width - 1);

export const served = false;
export const fileOf = () => null;
export const Refused = class extends Error {};
export function follow() {}

export async function send() {
  throw new Error("This is a report: open the live page to do that.");
}

export async function get(path, parameters = {}) {
  if (path === "runs") return { live: true, now: embedded.made, runs: Object.values(embedded.runs).map(({ run }) => run) };
  const run = embedded.runs[parameters.run] ?? Object.values(embedded.runs)[0];
  const { statistic, from = 0, to = Infinity } = parameters;
  if (path === "series") return cut(seriesOf(run, statistic, parameters.site), from, to);
  if (path === "curves") return { curves: [statistic].flat().map((name) => cut(seriesOf(run, name, parameters.site), from, to)) };
  if (path === "layers") return cut(run.layers[statistic] ?? nothing(statistic), from, to);
  if (path === "scores") return cut(only(lines(run.scores), parameters.detector), from, to);
  if (path === "profile") return profileAt(run, statistic, parameters.step);
  if (run[path] !== undefined) return run[path];
  throw new Error(`This report does not hold ${path}.`);
}

const nothing = (statistic) => ({ statistic, unit: "1", help: "", width: 1, steps: [], times: [], sites: [], values: [], lines: [] });

// A line is stored as its low and high, or as both in one where they are the same.
const lines = (series) => ({ ...series, lines: series.lines.map(({ site, both, low = both, high = both }) => ({ site, low, high })) });

function seriesOf(run, statistic, site) {
  if (run.series[statistic]) return only(lines(run.series[statistic]), site);
  const layers = run.layers[statistic] ?? nothing(statistic);
  const found = layers.sites.map((place, i) => ({ site: place, low: layers.values[i], high: layers.values[i] }));
  const ends = layers.steps.map((_, i) => lastOf(layers.steps, layers.width, i));
  return only({ ...layers, width: undefined, steps: ends, lines: found }, site);
}

function only(series, names) {
  if (names === undefined || names.length === 0) return series;
  const wanted = new Set([names].flat());
  return { ...series, lines: series.lines.filter(({ site }) => wanted.has(site.name)) };
}

// The part of an answer that lies in a range of steps.
function cut(answer, from, to) {
  const kept = [];
  answer.steps.forEach((step, i) => {
    if (lastOf(answer.steps, answer.width, i) >= from && step <= to) kept.push(i);
  });
  if (kept.length === answer.steps.length) return answer;
  const of = (values) => values && kept.map((i) => values[i]);
  return {
    ...answer,
    steps: of(answer.steps),
    times: of(answer.times),
    values: answer.values?.map(of),
    lines: answer.lines?.map(({ site, low, high }) => ({ site, low: of(low), high: of(high) })),
  };
}

// At a step: the newest reading at or before it, of what the report holds.
function profileAt(run, statistic, step) {
  const profile = run.profile[statistic];
  if (profile === undefined || step === undefined) return profile;
  const { sites, steps, values } = run.layers[statistic] ?? nothing(statistic);
  const place = new Map(sites.map((site, i) => [site.name, values[i]]));
  const end = steps.findLastIndex((first) => first <= step) + 1;
  const at = profile.sites.map(({ name }) => place.get(name)?.slice(0, end).findLast((value) => value !== null) ?? null);
  return { ...profile, step: Number(step), at };
}

// Runbooks are files of the server; here their text is shown over the page.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="runbook/"]');
  if (!link) return;
  event.preventDefault();
  const text = embedded.runbooks[decodeURIComponent(link.getAttribute("href").slice("runbook/".length))];
  const [shown, page, close] = ["dialog", "pre", "button"].map((tag) => document.createElement(tag));
  page.textContent = text ?? "This report does not hold that page.";
  close.textContent = "Close";
  close.addEventListener("click", () => shown.close());
  shown.addEventListener("close", () => shown.remove());
  shown.append(close, page);
  document.body.append(shown);
  shown.showModal();
});

// On paper nothing can be unfolded.
addEventListener("beforeprint", () => document.querySelectorAll("details:not(.hints)").forEach((fold) => (fold.open = true)));
