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
  const shown = marks.filter(({ step }) => scale.at(step) >= scale.min && scale.at(step) <= scale.max);
  const dash = { critical: "solid", warning: "dashed", info: "dotted" };
  let free = -Infinity;
  const data = [...shown].sort((a, b) => a.step - b.step).slice(-60).map(({ step, severity, text }) => {
    const share = (scale.at(step) - scale.min) / (scale.max - scale.min);
    const room = (LETTER * (text.length + 1)) / width;
    const fits = share >= free && share + room <= 1;
    if (fits) free = share + room;
    const paint = colour(severity ?? "faint");
    return {
      xAxis: scale.at(step),
      lineStyle: { color: paint, type: dash[severity] ?? [1, 3], width: severity ? 1.5 : 1 },
      label: { show: width > 0, formatter: fits ? text : text.slice(0, 1), color: paint, position: "end", rotate: 0, align: fits ? "left" : "center", fontSize: 11, distance: 2 },
    };
  });
  return { type: "line", data: [], silent: true, markLine: { silent: true, symbol: "none", animation: false, data } };
}

// Of the marks near a step, in words: what the pointer is at.
export function marksNear(marks, step, within) {
  const near = marks.filter((mark) => Math.abs(mark.step - step) <= within);
  return near.slice(0, 3).map((mark) => `${mark.text} at step ${number(mark.step)}`);
}
