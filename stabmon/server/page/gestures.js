// Pointer, wheel and keys on a chart, and the one cursor that all charts share.

import { make } from "./dom.js";
import { showLegend } from "./panel.js";
import { panned, scaleOf, span, zoomed, spanTo } from "./span.js";

const STILL = 4;

export function gesturesOn(view, panel) {
  const { box } = panel;
  box.addEventListener("pointermove", (event) => pointAt(view, panel, event));
  box.addEventListener("pointerleave", () => setCursor(view, null));
  box.addEventListener("pointerdown", (event) => event.button === 0 && dragFrom(view, panel, event));
  box.addEventListener("keydown", (event) => onKey(view, panel, event));
  if (panel.stepped === false) return;
  box.addEventListener("dblclick", () => view.change({ from: undefined, to: undefined, last: undefined }));
  box.addEventListener("wheel", (event) => onWheel(view, panel, event), { passive: false });
}

// [step (or place in a profile), row] under the pointer; null outside the plot.
function under(view, panel, event) {
  const { left, top } = panel.box.getBoundingClientRect();
  const point = [event.clientX - left, event.clientY - top];
  if (!panel.chart.containPixel({ gridIndex: 0 }, point)) return null;
  const [x, y] = panel.chart.convertFromPixel({ gridIndex: 0 }, point);
  return { x, step: panel.stepped === false ? null : Math.round(scaleOf(view).step(x)), row: panel.rows ? y : null };
}

function pointAt(view, panel, event) {
  const at = under(view, panel, event);
  setCursor(view, at, panel);
}

// Moves the cursor of every chart, and its values, at most once a frame.
export function setCursor(view, at, panel) {
  view.cursor = at && at.step !== null ? { step: at.step } : null;
  view.pointed = at ? { panel, ...at } : null;
  view.frame ??= requestAnimationFrame(() => {
    view.frame = null;
    view.panels.filter((one) => one.seen && one.chart && one.data).forEach((one) => showCursor(view, one));
  });
}

function showCursor(view, panel) {
  const own = view.pointed?.panel === panel;
  if (panel.stepped === false) return showLegend(panel, panel.kind.read(panel.data, own ? view.pointed.x : null));
  const step = view.cursor?.step;
  const scale = scaleOf(view);
  const inside = step !== undefined && scale.at(step) >= scale.min && scale.at(step) <= scale.max;
  panel.cursor.hidden = !inside;
  if (inside) panel.cursor.style.left = `${panel.chart.convertToPixel({ xAxisIndex: 0 }, scale.at(step))}px`;
  showLegend(panel, panel.kind.read(panel.data, step ?? Infinity, own ? view.pointed.row : (panel.rowOf?.(view, panel.data) ?? null)));
  view.told(view);
}

function dragFrom(view, panel, event) {
  const start = under(view, panel, event);
  if (!start) return;
  const { left } = panel.box.getBoundingClientRect();
  const shade = make("i", { class: "shade" });
  const [begin, shown, moves] = [event.clientX, span(view), event.shiftKey];
  panel.box.append(shade);
  panel.box.setPointerCapture(event.pointerId);
  const move = (now) => {
    if (panel.stepped === false || Math.abs(now.clientX - begin) < STILL) return;
    if (moves) view.change(spanTo(view, ...shown.map((step) => step + shiftOf(view, panel, begin - now.clientX))));
    else Object.assign(shade.style, { left: `${Math.min(begin, now.clientX) - left}px`, width: `${Math.abs(now.clientX - begin)}px` });
  };
  const end = (now) => {
    shade.remove();
    panel.box.removeEventListener("pointermove", move);
    if (now.type !== "pointerup") return;
    if (Math.abs(now.clientX - begin) < STILL) panel.click?.(view, panel, start);
    else if (panel.stepped !== false && !moves) choose(view, panel, begin - left, now.clientX - left);
  };
  panel.box.addEventListener("pointermove", move);
  for (const name of ["pointerup", "pointercancel"]) panel.box.addEventListener(name, end, { once: true });
}

const stepAt = (view, panel, x) => scaleOf(view).step(panel.chart.convertFromPixel({ xAxisIndex: 0 }, x));
const shiftOf = (view, panel, pixels) => stepAt(view, panel, 100 + pixels) - stepAt(view, panel, 100);

function choose(view, panel, from, to) {
  const [begin, end] = [Math.min(from, to), Math.max(from, to)].map((x) => stepAt(view, panel, x));
  view.change(spanTo(view, begin, end));
}

// With Ctrl (as a pinch on a touch pad is told) it zooms, sideways or with Shift it moves; else the page scrolls.
function onWheel(view, panel, event) {
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (event.ctrlKey || event.metaKey) {
    const [begin, end] = span(view);
    const step = under(view, panel, event)?.step ?? end;
    view.change(zoomed(view, Math.exp(Math.sign(event.deltaY) * 0.25), (step - begin) / (end - begin || 1)));
  } else if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
    view.change(panned(view, Math.sign(sideways) * 0.1));
  } else return;
  event.preventDefault();
}

function onKey(view, panel, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.shiftKey && /^Arrow(Left|Right)$/.test(event.key) && panel.stepped !== false) {
    const [begin, end] = span(view);
    const by = Math.max(1, Math.round((end - begin) / 50)) * (event.key === "ArrowLeft" ? -1 : 1);
    const step = Math.max(begin, Math.min((view.cursor?.step ?? end) + by, end));
    setCursor(view, { step, row: null }, panel);
  } else if (panel.pick && /^(Arrow(Up|Down)|Enter)$/.test(event.key)) panel.pick(view, panel, event.key);
  else if (!view.key(event.key)) return;
  event.preventDefault();
}
