// What happened to the run, as marks on every chart over the steps.

import { colour } from "./theme.js";
import { number, plain, SEVERITIES, symbol } from "./words.js";

const TOLD = { resume: "resumed", batch_size: "batch size changed", pretrained: "starts from pretrained weights", part_failed: "a part of stabmon failed", dropped_rows: "steps lost", learning_rate: "learning rate changed" };
// Pixels that a letter of a name takes; where there is no room for the whole name, only its sign is written.
const LETTER = 6.5;

export function marksOf(alerts, events) {
  const raised = alerts.filter((alert) => alert.state === "raised");
  const worst = new Map();
  for (const alert of raised) {
    const before = worst.get(alert.step);
    if (!before || SEVERITIES.indexOf(alert.severity) > SEVERITIES.indexOf(before.severity)) worst.set(alert.step, alert);
  }
  const ours = [...worst.values()].map(({ step, severity, detector }) => ({ step, severity, text: `${symbol[severity]} ${plain(detector)}` }));
  const theirs = events.filter(({ kind }) => TOLD[kind]).map(({ step, kind }) => ({ step, severity: null, text: `· ${TOLD[kind]}` }));
  return [...theirs, ...ours];
}

// As vertical lines of a series that holds nothing else; with names on a chart that is so many pixels wide, else 0.
export function markSeries(marks, scale, width) {
  const shown = marks.filter(({ step }) => scale.at(step) >= scale.min && scale.at(step) <= scale.max).sort((a, b) => a.step - b.step).slice(-60);
  const dash = { critical: "solid", warning: "dashed", info: "dotted" };
  const written = namesOver(shown, (step) => ((scale.at(step) - scale.min) / (scale.max - scale.min)) * width, width);
  const data = shown.map((mark) => {
    const { step, severity, text } = mark;
    const paint = colour(severity ?? "faint");
    return {
      xAxis: scale.at(step),
      lineStyle: { color: paint, type: dash[severity] ?? [1, 3], width: severity ? 1.5 : 1 },
      label: { show: written.has(mark), formatter: written.get(mark), color: paint, position: "end", rotate: 0, align: written.get(mark) === text ? "left" : "center", fontSize: 11, distance: 2 },
    };
  });
  return { type: "line", data: [], silent: true, markLine: { silent: true, symbol: "none", animation: false, data } };
}

// What is written over each mark: the worst first, its name where that covers nothing, else its sign, else nothing.
function namesOver(marks, place, width) {
  const written = new Map();
  const taken = [];
  if (width === 0) return written;
  const free = (from, to) => from >= -LETTER && to <= width + LETTER && !taken.some(([begin, end]) => from < end && begin < to);
  const worst = ({ severity }) => SEVERITIES.indexOf(severity);
  for (const mark of [...marks].sort((a, b) => worst(b) - worst(a) || a.step - b.step)) {
    const at = place(mark.step);
    const choices = [[mark.text, at, at + LETTER * (mark.text.length + 1)], [mark.text.slice(0, 1), at - LETTER, at + LETTER]];
    const fits = choices.find(([, from, to]) => free(from, to));
    if (!fits) continue;
    taken.push(fits.slice(1));
    written.set(mark, fits[0]);
  }
  return written;
}

// Of the marks near a step, in words: what the pointer is at.
export function marksNear(marks, step, within) {
  const near = marks.filter((mark) => Math.abs(mark.step - step) <= within);
  return near.slice(0, 3).map((mark) => `${mark.text} at step ${number(mark.step)}`);
}
