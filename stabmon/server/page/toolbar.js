// What is shown of the run: which steps, on which axis, how smooth, beside which other runs.

import { make } from "./dom.js";
import { marksNear } from "./marks.js";
import { known, panned, span, zoomed } from "./span.js";
import { date, number } from "./words.js";

const SMOOTH = [10, 100, 1000];

const KEYS = {
  "+": (view) => zoomed(view, 0.5),
  "=": (view) => zoomed(view, 0.5),
  "-": (view) => zoomed(view, 2),
  ArrowLeft: (view) => panned(view, -0.25),
  ArrowRight: (view) => panned(view, 0.25),
  0: () => ({ from: undefined, to: undefined, last: undefined }),
  Home: () => ({ from: undefined, to: undefined, last: undefined }),
  End: (view) => panned(view, 1e9),
  Escape: () => ({ layer: undefined, alert: undefined, detector: undefined }),
};

// Whether the key means something on a chart.
export function pressed(view, key) {
  if (!KEYS[key]) return false;
  view.change(KEYS[key](view));
  return true;
}

const button = (text, label, onclick, more = {}) => make("button", { type: "button", "aria-label": label, title: label, onclick, ...more }, text);

function lengths(view) {
  const [least, most] = known(view);
  const { from, to, last } = view.state;
  const whole = from === undefined && to === undefined && last === undefined;
  const choose = (length) => () => view.change({ from: undefined, to: undefined, alert: undefined, last: length });
  const fitting = [10000, 1000, 100].filter((length) => most - least > 1.5 * length);
  return [
    make("button", { type: "button", "aria-pressed": String(whole), onclick: choose(undefined) }, "whole run"),
    ...fitting.map((length) => make("button", { type: "button", "aria-pressed": String(last === length), onclick: choose(length) }, `last ${number(length)}`)),
  ];
}

function choice(label, value, options, onchange) {
  const made = options.map(([name, text]) => make("option", { value: name, selected: String(name) === String(value) }, text));
  return make("label", {}, `${label} `, make("select", { onchange: (event) => onchange(event.target.value) }, ...made));
}

export function toolbarOf(view) {
  view.lengths = make("span", { class: "group" });
  // These change by themselves: what a person did is said aloud instead.
  view.shown = make("span", { class: "shown" });
  view.pointer = make("span", { class: "pointer" });
  view.said = make("span", { class: "aloud", role: "status" });
  const turn = (key) => () => pressed(view, key);
  const moves = make("span", { class: "group" }, button("−", "Show more steps", turn("-")), button("+", "Show fewer steps", turn("+")), button("◀", "Earlier steps", turn("ArrowLeft")), button("▶", "Later steps", turn("ArrowRight")));
  // Of a file without times there is none.
  const axis = view.summary.started === null ? "" : choice("axis", view.state.x ?? "step", [["step", "step"], ["time", "time"]], (value) => view.change({ x: value === "time" ? "time" : undefined }));
  const smooth = choice("smooth", view.state.smooth ?? "", [["", "off"], ...SMOOTH.map((steps) => [steps, `${number(steps)} steps`])], (value) => view.change({ smooth: value ? Number(value) : undefined }));
  view.copied = button("copy link", "Copy a link to this view", () => copy(view));
  const help = "On a chart: drag to zoom, Shift and drag to move, double click for the whole run, Ctrl and wheel to zoom, Shift and wheel to move. With the keyboard, once a chart has the focus: + and - zoom, arrows move, Shift and arrows read values, 0 shows the whole run, up and down choose a layer, Escape lets go of it.";
  const hints = make("details", { class: "hints" }, make("summary", {}, "keys"), make("p", {}, help));
  const bar = make("nav", { class: "toolbar", "aria-label": "What is shown" }, view.lengths, moves, axis, smooth, view.compare, view.copied, hints, view.pointer, view.shown, view.said);
  new ResizeObserver(() => document.documentElement.style.setProperty("--toolbar", `${bar.offsetHeight}px`)).observe(bar);
  return bar;
}

export function toldToolbar(view) {
  const [begin, end] = span(view);
  const texts = [...view.lengths.children].map((one) => one.outerHTML).join();
  const made = lengths(view);
  if (texts !== made.map((one) => one.outerHTML).join()) view.lengths.replaceChildren(...made);
  setText(view.shown, `steps ${number(begin)} to ${number(end)}`);
  const at = view.cursor?.step;
  const near = at === undefined ? [] : marksNear(view.marks, at, (end - begin) / 100);
  setText(view.pointer, at === undefined ? "" : [`at step ${number(at)}${timeAt(view)}`, ...near].join(" · "));
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function timeAt({ clock, cursor }) {
  const i = clock?.steps.findIndex((step) => step >= cursor.step) ?? -1;
  return i < 0 || !clock.times[i] ? "" : `, ${date(clock.times[i])}`;
}

async function copy(view) {
  try {
    await navigator.clipboard.writeText(location.href);
    view.copied.textContent = "copied";
  } catch {
    view.copied.textContent = "copy it from the address bar"; // over plain HTTP browsers do not let pages copy
  }
  setTimeout(() => (view.copied.textContent = "copy link"), 3000);
}

// Other runs of the folder, drawn beside this one; which ones is in the address.
export function compareOf(view, runs) {
  const others = runs.filter((run) => run.id !== view.id && !run.error);
  const box = make("details", { class: "compare" }, make("summary", {}, view.others.length ? `beside ${view.others.length} other${view.others.length > 1 ? "s" : ""}` : "compare"));
  const toggle = (run) => (event) => {
    const ids = new Set(view.others.map(({ id }) => id));
    if (event.target.checked) ids.add(run.id);
    else ids.delete(run.id);
    const address = new URL(location.href);
    if (ids.size) address.searchParams.set("with", [...ids].join());
    else address.searchParams.delete("with");
    history.replaceState(null, "", address);
    view.beside([...ids].map((id) => runs.find((one) => one.id === id)));
    box.querySelector("summary").textContent = ids.size ? `beside ${ids.size} other${ids.size > 1 ? "s" : ""}` : "compare";
  };
  const rows = others.map((run) => make("label", {}, make("input", { type: "checkbox", checked: view.others.some(({ id }) => id === run.id), onchange: toggle(run) }), ` ${run.id}`));
  box.append(make("div", { class: "choices" }, ...rows));
  return others.length ? box : "";
}

