// A chart with its heading, its values in words, and the ways to take it along.
//
// panel: { key, title, help, height, kind, fetch, choices, ... }: `fetch(view, panel)` answers the data, `kind` has paint, read, words, table.

import { chart } from "./axes.js";
import { make } from "./dom.js";
import { download, pictureOf, textOf } from "./export.js";
import { number } from "./words.js";

const MOST_ROWS = 14;

export function panelOf(view, made) {
  const panel = { due: true, seen: false, at: 0, data: null, log: made.logarithmic, ...made };
  if (view.state.log !== undefined) panel.log = view.state.log.split(",").includes(panel.key);
  const heading = `${panel.key}-title`;
  const words = `${panel.key}-words`;
  panel.note = make("p", { class: "help" }, made.help ?? "");
  panel.legend = make("p", { class: "legend" });
  panel.words = make("p", { id: words });
  panel.table = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${panel.title}: table` });
  panel.text = make("div", { class: "text hidden" }, panel.words, panel.table);
  panel.box = make("div", { class: "chart", tabindex: 0, role: "group", "aria-roledescription": "chart", "aria-labelledby": heading, "aria-describedby": words });
  panel.box.style.height = `${panel.height ?? 230}px`;
  panel.heading = make("h3", { id: heading }, made.title);
  const bar = make("div", { class: "bar" }, panel.heading, ...(panel.choices ?? []), make("span", { class: "tools" }, ...tools(view, panel)));
  panel.figure = make("figure", { class: panel.wide ? "panel wide" : "panel", id: panel.key }, bar, panel.note, panel.legend, panel.box, panel.text);
  return panel;
}

function tools(view, panel) {
  const name = panel.title;
  const tool = (text, label, onclick, more = {}) => make("button", { type: "button", "aria-label": `${label}: ${name}`, title: label, onclick, ...more }, text);
  const toggle = (event) => {
    const hidden = panel.text.classList.toggle("hidden");
    event.currentTarget.setAttribute("aria-expanded", String(!hidden));
    fillTable(panel);
  };
  const switchLog = (event) => {
    panel.log = !panel.log;
    event.currentTarget.setAttribute("aria-pressed", String(panel.log));
    const now = view.panels.filter(({ log }) => log).map(({ key }) => key).join();
    view.change({ log: now || "none" });
  };
  return [
    ...(panel.logarithmic === undefined ? [] : [tool("log", "Logarithmic axis", switchLog, { "aria-pressed": String(Boolean(panel.log)) })]),
    tool("text", "In words and as a table", toggle, { "aria-expanded": "false" }),
    tool("PNG", "Save as a picture", () => download(fileName(view, panel, "png"), pictureOf(panel))),
    tool("CSV", "Save the values", () => download(fileName(view, panel, "csv"), panel.file?.(view, panel) ?? textOf(panel.kind.table(panel.data)))),
  ];
}

const fileName = (view, panel, ending) => `${view.summary.name}-${panel.key}.${ending}`.replaceAll(/[^\w.-]+/g, "_");

// Draws what there is, without asking for anything.
export function paint(view, panel) {
  if (!panel.data) return;
  panel.chart ??= begin(view, panel);
  panel.kind.paint(view, panel, panel.data);
  panel.words.textContent = panel.kind.words(panel.data);
  if (!panel.text.classList.contains("hidden")) fillTable(panel);
  showLegend(panel, panel.stepped === false ? panel.kind.read(panel.data, null) : panel.kind.read(panel.data, view.cursor?.step ?? Infinity, panel.rowOf?.(view, panel.data) ?? null));
}

function begin(view, panel) {
  const made = chart(panel.box);
  panel.cursor = make("i", { class: "cursor", hidden: true });
  panel.box.append(panel.cursor);
  view.gestures(view, panel);
  return made;
}

function fillTable(panel) {
  if (!panel.data) return;
  const { columns, rows } = panel.kind.table(panel.data);
  const every = Math.max(1, Math.ceil(rows.length / MOST_ROWS));
  const shown = panel.kind.whole ? rows : rows.filter((_, i) => (rows.length - 1 - i) % every === 0);
  const cell = (value) => (typeof value === "string" && !Number.isNaN(Number(value)) ? number(value) : typeof value === "string" ? value : number(value));
  const head = make("tr", {}, ...columns.map((name) => make("th", { scope: "col" }, name)));
  panel.table.replaceChildren(make("table", {}, make("thead", {}, head), make("tbody", {}, ...shown.map((row) => make("tr", {}, ...row.map((value) => make("td", {}, cell(value))))))));
}

export function showLegend(panel, entries) {
  const chips = entries.map(({ name, colour, dashed, band, value }) => {
    const key = colour ? make("i", { class: band ? "key band" : dashed ? "key dashed" : "key" }) : "";
    if (key) key.style.borderColor = colour;
    return make("span", { class: "chip-of" }, key, value ? `${name} ` : name, value ? make("b", {}, value) : "");
  });
  panel.legend.replaceChildren(...(panel.kind.scale?.(panel) ?? []), ...chips);
}
