// The runs of a folder, newest first.

import { get, Refused } from "./api.js";
import { find, make, notice, show } from "./dom.js";
import { date, duration, number, symbol } from "./words.js";

const SECONDS = 5;
const HEADINGS = [["Run"], ["How it is doing"], ["Step", "number"], ["Loss", "number"], ["Open alerts", "number wide"], ["Last step", "number wide"]];

export async function showList() {
  document.title = "Runs · stabmon";
  find("name").textContent = "Runs";
  const body = make("tbody");
  const head = make("tr", {}, ...HEADINGS.map(([text, kind]) => make("th", { class: kind, scope: "col" }, text)));
  const table = make("table", { class: "runs" }, make("thead", {}, head), body);
  await fill(body);
  if (body.childElementCount > 0) show(make("div", { class: "scroll" }, table));
  else notice("No runs yet", "This folder holds no run log (a file that ends in .stabmon). One that appears is shown here.");
  setInterval(async () => {
    if (document.hidden) return;
    try {
      await fill(body);
      find("freshness").className = "";
      if (body.childElementCount > 0 && !table.isConnected) show(make("div", { class: "scroll" }, table));
    } catch (error) {
      find("freshness").className = "lost";
      find("freshness").textContent = error instanceof Refused ? "The token is no longer good." : "Connection lost.";
    }
  }, 1000 * SECONDS);
}

async function fill(body) {
  const { now, runs } = await get("runs");
  body.replaceChildren(...runs.map((run) => row(run, now)));
  find("freshness").textContent = `${runs.length} ${runs.length === 1 ? "run" : "runs"}, newest first`;
}

function row(run, now) {
  const link = make("a", { href: `?${new URLSearchParams({ run: run.id })}` }, run.id);
  if (run.error) {
    return make("tr", { class: "silent" }, make("td", {}, run.id), make("td", { class: "word", colspan: HEADINGS.length - 1 }, `Cannot be read: ${run.error}`));
  }
  const { level, title } = run.verdict;
  return make(
    "tr",
    { class: level },
    make("td", {}, link),
    make("td", { class: "word" }, `${symbol[level]} ${title}`),
    make("td", { class: "number" }, number(run.step)),
    make("td", { class: "number" }, number(run.loss)),
    make("td", { class: "number wide" }, String(run.open_alerts)),
    make("td", { class: "number wide", title: run.time ? date(run.time) : "" }, run.time ? `${duration(Math.max(0, now - run.time))} ago` : "–"),
  );
}
