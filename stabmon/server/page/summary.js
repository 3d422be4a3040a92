// How the run is doing, its newest numbers, and how old they are.

import { served } from "./api.js";
import { find, make } from "./dom.js";
import { capital, clock, date, duration, number, percent, symbol, UNKNOWN } from "./words.js";

// What a clock that is off by more than this many seconds is told as.
const ODD_CLOCK = 60;
// Of another tool's file nobody knows how the run ended.
const RECORDED = "recorded";

export function verdictOf(view) {
  const { verdict, unseen = [], since_time: since } = view.summary;
  const told = JSON.stringify([verdict, unseen, since]);
  if (told === view.verdictTold) return; // what is read aloud is read once
  view.verdictTold = told;
  const basis = verdict.basis ? make("p", { class: "basis" }, verdict.basis) : "";
  // How long ago it was changes all the time, and is not read aloud each time.
  const began = since ? make("p", { class: "basis", "aria-live": "off" }, `It began at ${clock(since)}`, agoOf(since), ".") : "";
  const rows = unseen.map(({ what, why, todo }) => make("li", {}, make("b", {}, what), `: ${[why, todo].filter(Boolean).join(" ")}`));
  const hidden = rows.length ? make("details", { open: view.unseenOpen, ontoggle: (event) => (view.unseenOpen = event.target.open) }, make("summary", {}, `Not seen: ${verdict.unseen.join(", ") || unseen.map(({ what }) => what).join(", ")}`), make("ul", {}, ...rows)) : "";
  view.verdict.className = `verdict ${verdict.level}`;
  view.verdict.replaceChildren(make("h2", {}, make("span", { class: "sign", "aria-hidden": "true" }, symbol[verdict.level]), ` ${verdict.title}`), make("p", {}, verdict.text), began, basis, hidden);
}

export function heading(view) {
  const { name, state, verdict, framework, model, version, started } = view.summary;
  document.title = `${symbol[verdict.level]} ${name} · stabmon`;
  find("name").textContent = name;
  Object.assign(find("state"), { textContent: state ?? RECORDED, hidden: false });
  find("about").textContent = version ? [` ${model} (${framework})`, started && `started ${date(started)}`, `stabmon ${version}`].filter(Boolean).join(", ") : ""; // else by another tool
}

export function tilesOf({ step, values, cost, planned, left, checkpoint }) {
  const rows = [
    ["Step", number(step), [planned && planned >= step ? `of ${number(planned)}` : "", left].filter(Boolean).join(", ")],
    ["Loss", number(values.loss), Number.isFinite(Number(values.loss ?? NaN)) ? "nats" : ""],
    ["Position-dependent output", values.context_share === undefined ? UNKNOWN : percent(values.context_share)],
    ["Learning rate", number(values.learning_rate)],
    ["Gradient norm", number(values.total_grad_norm)],
    ["Step time", duration(values.step_seconds)],
    ...(checkpoint ? [["Last good checkpoint", number(checkpoint.step), [checkpoint.name, clock(checkpoint.time)].filter(Boolean).join(", ")]] : []),
    ["stabmon's own time", percent(cost.recent_ratio), `${duration(cost.recent_seconds)} a step; whole run ${percent(cost.total_ratio)}`],
  ];
  const known = served ? rows : rows.filter(([, value]) => value !== UNKNOWN); // of a recorded run nothing more will come
  return known.map(([title, value, unit]) => make("div", { class: "tile" }, make("dt", {}, title), make("dd", {}, `${value} `, make("small", {}, unit ?? ""))));
}

const ago = (seconds) => (seconds < 1 ? "just now" : `${duration(Math.round(seconds))} ago`);

// ", 2 h ago", kept up by `freshness`; a report is of one moment, and tells of none.
export const agoOf = (unixSeconds) => (served ? make("span", { "data-ago": unixSeconds }) : "");

function keepUpAgo({ summary, read }) {
  const now = summary.now + (performance.now() - read) / 1000;
  for (const span of document.querySelectorAll("[data-ago]")) {
    const text = `, ${ago(now - Number(span.dataset.ago))}`;
    if (span.textContent !== text) span.textContent = text;
  }
}

// Seconds since the newest step. Counted on by a clock that nobody sets; rows that came show that the run is alive.
function ageOf({ summary, read, came }) {
  const counted = (performance.now() - read) / 1000;
  const told = summary.age ?? Math.max(0, summary.now - (summary.time || summary.started));
  return Math.min(told + counted, came === undefined ? Infinity : (performance.now() - came) / 1000);
}

// Old numbers must not look new: says how old they are, and dims them once that is too old.
export function freshness(view) {
  const { summary, lost, why } = view;
  const place = find("freshness");
  const age = ageOf(view);
  const running = summary.state === "running";
  const stale = served && running && age > summary.silent_after;
  const gone = Boolean(view.gone) && !lost;
  document.body.classList.toggle("stale", stale || gone || (served && Boolean(lost) && running));
  place.className = gone || (lost && running) ? "lost" : "";
  keepUpAgo(view);
  const text = wordsOf(view, age, stale, running);
  if (place.textContent !== text) place.textContent = text;
  const trouble = gone ? `The server says: ${view.gone.why}. What was read of it before is still shown.` : lost && running ? (why ?? "Trying again every few seconds. If the training was started again, its log tells the new address; if it has ended, stabmon serve FOLDER shows its run log.") : oddClock(summary);
  view.trouble.hidden = !trouble;
  if (view.trouble.textContent !== trouble) view.trouble.textContent = trouble;
}

function wordsOf({ summary, lost, gone }, age, stale, running) {
  if (summary.as_of) return `as of ${date(summary.as_of)}`;
  if (lost && running) return `Connection lost at ${clock(lost)}; what you see is older.`;
  if (gone && !lost) return `Cannot be read since ${clock(gone.since)}; what you see is older.`;
  if (!running) return `${capital(summary.state ?? RECORDED)} ${date(summary.time || summary.started)}`;
  if (!summary.time) return `no step yet, for ${duration(Math.round(age))}`;
  return stale ? `no data for ${duration(Math.round(age))}, last step ${clock(summary.time)}` : `last step ${ago(age)}`;
}

function oddClock({ time, now, as_of: made }) {
  const ahead = time - now;
  return !made && ahead > ODD_CLOCK ? `The clock of the training is ${duration(ahead)} ahead of this server's; its times are shown as it told them. Steps are right.` : "";
}
