// What the run was set to, where it runs, and what stabmon itself takes.

import { make } from "./dom.js";
import { duration, percent, plain, shown } from "./words.js";

function listOf(title, pairs) {
  const rows = pairs.map(([name, value]) => make("div", {}, make("dt", {}, plain(name)), make("dd", {}, shown(value))));
  return pairs.length ? [make("section", { class: "panel facts" }, make("h3", {}, title), make("dl", {}, ...rows))] : [];
}

export function factsOf({ settings = {}, environment = {}, labels = {}, cost, world_size: ranks, model, framework, version, rows }) {
  const { world_size: _, ...machine } = environment; // the ranks
  const run = { model, framework, stabmon: version, ranks: version ? ranks : null, ...(rows === undefined ? {} : { "steps recorded": rows }), ...machine, ...labels };
  const time = {
    "a step, newest": `${duration(cost.recent_seconds)} (${percent(cost.recent_ratio)} of it)`,
    "whole run": `${duration(cost.total_seconds)} (${percent(cost.total_ratio)})`,
  };
  const given = Object.entries(settings);
  return [
    ...listOf("Where it runs", Object.entries(run).filter(([, value]) => value !== "" && value !== null)),
    ...listOf("What the monitor was given", given),
    ...listOf("What stabmon itself takes", cost.total_seconds ? Object.entries(time) : []),
  ];
}
