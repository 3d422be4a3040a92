// The runs of a folder: sorted and filtered as the address says, kept up, two or more of them to be compared.

import { get, Refused } from "./api.js";
import { find, make, notice, show } from "./dom.js";
import { changed, readFragment } from "./fragment.js";
import { capital, date, duration, number, symbol } from "./words.js";

const REFRESH_SECONDS = 5;
// Beyond so many rows the page shows the rest when asked to: no browser draws thousands at once without a pause.
const SHOWN_ROWS = 300;
const NUMBERED = "number";
const LEVELS = ["critical", "warning", "silent", "info", "healthy", "ended"];
// Name in the address, heading, class, and what it sorts by: what is undefined comes last.
const COLUMNS = [
  ["name", "Run", "", (run) => run.id.toLowerCase()],
  ["verdict", "How it is doing", "", (run) => (run.verdict ? LEVELS.indexOf(run.verdict.level) : undefined)],
  ["state", "State", "wide", (run) => stateOf(run)],
  ["step", "Step", NUMBERED, (run) => run.step ?? undefined],
  ["loss", "Loss", NUMBERED, (run) => (run.loss === null ? undefined : Number(run.loss))],
  ["trend", "Its course", "wide", undefined],
  ["alerts", "Open alerts", `${NUMBERED} wide`, (run) => -run.open_alerts],
  ["age", "Last step", `${NUMBERED} wide`, (run) => run.age ?? undefined],
];
const FILTERS = ["any state", "running", "no data", "open alert", "finished", "failed", "stopped", "preempted", "cannot be read"];

export async function showList() {
  document.title = "Runs · stabmon";
  find("name").textContent = "Runs";
  const list = { state: readFragment(), runs: [], rows: new Map(), chosen: new Set(), all: false };
  await refreshList(list);
  buildList(list);
  window.addEventListener("hashchange", () => {
    list.state = readFragment();
    if (list.search) [list.search.value, list.states.value] = [list.state.find ?? "", list.state.state ?? FILTERS[0]];
    drawList(list);
  });
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * (list.runs.some(isUnread) ? 1 : REFRESH_SECONDS)));
    await keepUp(list);
  }
}

async function refreshList(list) {
  const { now, runs } = await get("runs");
  Object.assign(list, { now, runs });
}

async function keepUp(list) {
  if (document.hidden) return;
  try {
    const empty = list.runs.length === 0;
    await refreshList(list);
    if (empty && list.runs.length > 0) buildList(list);
    else if (!empty) drawList(list);
  } catch (error) {
    find("freshness").className = "lost";
    find("freshness").textContent =
      error instanceof Refused
        ? "The token is no longer good: open the address that stabmon serve printed."
        : "Connection lost: is stabmon serve still running? What is shown is as it was; it goes on by itself.";
  }
}

function buildList(list) {
  if (list.runs.length === 0) {
    notice("No runs yet", "This folder holds no run log (a file that ends in .stabmon). One that appears is shown here.");
    return;
  }
  const change = (changes) => {
    list.state = changed(list.state, changes);
    drawList(list);
  };
  list.search = make("input", { type: "search", placeholder: "find a run", "aria-label": "Find a run by name, model or words", value: list.state.find ?? "", oninput: () => change({ find: list.search.value }) });
  list.states = make("select", { "aria-label": "State", onchange: () => change({ state: list.states.value === FILTERS[0] ? undefined : list.states.value }) }, ...FILTERS.map((text) => make("option", { value: text, selected: text === list.state.state }, text)));
  list.compare = make("a", { class: "compare", hidden: true }, "");
  list.head = make("tr", {}, make("th", { scope: "col" }, make("span", { class: "unseen" }, "Compare")), ...COLUMNS.map((column) => headOf(column, list, change)));
  list.body = make("tbody");
  list.more = make("button", { type: "button", hidden: true, onclick: () => ((list.all = true), drawList(list)) });
  const table = make("table", { class: "runs" }, make("caption", { class: "unseen" }, "Runs of this folder"), make("thead", {}, list.head), list.body);
  list.nothing = make("p", { class: "nothing", hidden: true }, "No run fits. Change what is looked for, or the state.");
  show(make("div", { class: "bar filters" }, list.search, list.states, list.compare), make("div", { class: "scroll" }, table), list.nothing, list.more);
  drawList(list);
}

function headOf([name, text, kind, by], list, change) {
  if (!by) return make("th", { scope: "col", class: kind }, text);
  const turn = () => change({ sort: name, dir: list.state.sort === name && list.state.dir !== "down" ? "down" : "up" });
  return make("th", { scope: "col", class: kind, "data-sort": name }, make("button", { type: "button", class: "link", onclick: turn }, text));
}

// Rows that did not change stay as they are: a thousand runs are kept up without a pause.
function drawList(list) {
  const { sort, dir } = list.state;
  for (const head of list.head.querySelectorAll("[data-sort]")) {
    const ways = { up: "ascending", down: "descending" };
    head.setAttribute("aria-sort", head.dataset.sort === sort ? (ways[dir] ?? ways.up) : "none");
  }
  const fitting = sortedRuns(list.runs.filter((run) => fits(run, list.state)), list.state);
  const shownRuns = list.all ? fitting : fitting.slice(0, SHOWN_ROWS);
  const elements = shownRuns.map((run) => keptRow(run, list));
  if (elements.length !== list.body.childElementCount || elements.some((element, i) => element !== list.body.children[i])) list.body.replaceChildren(...elements);
  list.nothing.hidden = fitting.length > 0;
  list.more.hidden = shownRuns.length === fitting.length;
  list.more.textContent = `Show all ${number(fitting.length)}`;
  const count = (many) => `${number(many)} ${many === 1 ? "run" : "runs"}`;
  find("freshness").className = "";
  find("freshness").textContent = `${fitting.length < list.runs.length ? `${number(fitting.length)} of ` : ""}${count(list.runs.length)}${sort ? "" : ", newest first"}`;
  showCompare(list);
}

function fits(run, { find: text, state }) {
  const words = `${run.id} ${run.model ?? ""} ${run.verdict?.title ?? ""} ${run.error ?? ""}`.toLowerCase();
  if (text && !text.toLowerCase().split(/\s+/).every((word) => words.includes(word))) return false;
  if (state === "open alert") return run.open_alerts > 0;
  return !state || !FILTERS.includes(state) || stateOf(run) === state;
}

// Of a large folder the server answers what it has read so far.
const isUnread = (run) => run.error?.startsWith("not read yet") ?? false;
const stateOf = (run) => (run.error ? "cannot be read" : run.silent ? "no data" : run.state);

function sortedRuns(runs, { sort, dir }) {
  const by = COLUMNS.find(([name]) => name === sort)?.[3];
  if (!by) return runs;
  const way = dir === "down" ? -1 : 1;
  const keyed = runs.map((run) => [by(run), run]);
  const unknown = (key) => key === undefined || Number.isNaN(key);
  keyed.sort(([a], [b]) => (unknown(a) || unknown(b) ? unknown(a) - unknown(b) : way * (a < b ? -1 : a > b ? 1 : 0)));
  return keyed.map(([, run]) => run);
}

function keptRow(run, list) {
  const { age, ...rest } = run;
  const mark = JSON.stringify(rest);
  const known = list.rows.get(run.id);
  const kept = known?.mark === mark ? known : { mark, ...rowOf(run, list) };
  list.rows.set(run.id, kept);
  if (kept.age) kept.age.textContent = age === null ? "–" : `${duration(age)} ago`;
  return kept.element;
}

function rowOf(run, list) {
  const open = make("a", { href: `?${new URLSearchParams({ run: run.id })}` }, run.id);
  const tick = make("input", { type: "checkbox", "aria-label": `Compare ${run.id}`, checked: list.chosen.has(run.id), onchange: () => chooseRun(run.id, list) });
  if (run.error) {
    const why = make("td", { class: "word", colspan: COLUMNS.length - 1 }, `${symbol.silent} ${isUnread(run) ? capital(run.error) : `Cannot be read: ${run.error}`}`);
    return { element: make("tr", { class: "silent" }, make("td"), make("td", {}, run.id), why) };
  }
  const { level, title, text } = run.verdict;
  const age = make("td", { class: "number wide", title: run.time ? date(run.time) : "" });
  const element = make(
    "tr",
    { class: level },
    make("td", {}, tick),
    make("td", {}, open),
    make("td", { class: "word", title: text }, `${symbol[level]} ${title}`),
    make("td", { class: "wide" }, run.left ? `${stateOf(run)}, ${run.left}` : stateOf(run)),
    make("td", { class: "number", title: run.planned ? `of ${number(run.planned)}` : "" }, number(run.step)),
    make("td", { class: "number" }, number(run.loss)),
    make("td", { class: "wide" }, sparkline(run)),
    make("td", { class: "number wide" }, String(run.open_alerts)),
    age,
  );
  return { element, age };
}

// The losses in a small picture; a gap where one was not read or is not finite.
function sparkline({ spark, loss }) {
  const [width, height] = [96, 22];
  const values = spark.map((value) => (value === null ? NaN : Number(value)));
  const finite = values.filter(Number.isFinite);
  if (finite.length < 2) return make("span", { class: "faint" }, "–");
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const across = (i) => 1 + ((width - 2) * i) / (values.length - 1);
  const up = (value) => (high === low ? height / 2 : 2 + ((height - 4) * (high - value)) / (high - low));
  const path = values.map((value, i) => (Number.isFinite(value) ? `${Number.isFinite(values[i - 1]) ? "L" : "M"}${across(i).toFixed(1)} ${up(value).toFixed(1)}` : "")).join("");
  const words = `loss from ${number(finite[0])} to ${number(loss)}, lowest ${number(low)}, highest ${number(high)}`;
  const drawing = (tag, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };
  return drawing("svg", { class: "spark", role: "img", "aria-label": words, width, height, viewBox: `0 0 ${width} ${height}` }, drawing("title", {}, words), drawing("path", { d: path }));
}

function chooseRun(id, list) {
  if (!list.chosen.delete(id)) list.chosen.add(id);
  showCompare(list);
}

function showCompare({ chosen, compare, runs }) {
  const ids = runs.map(({ id }) => id).filter((id) => chosen.has(id));
  compare.hidden = ids.length < 2;
  const query = new URLSearchParams({ run: ids[0] ?? "" });
  for (const id of ids.slice(1)) query.append("with", id);
  compare.setAttribute("href", `?${query}`);
  compare.textContent = `Compare ${ids.length} runs`;
}
