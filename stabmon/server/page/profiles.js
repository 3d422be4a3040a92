// The layer profile: now, against the first step and the band it started in.

import { get } from "./api.js";
import { about, chooser, heightOf } from "./figures.js";
import { paintProfile, readProfile, tableOfProfile, wordsOfProfile } from "./profile.js";
import { chosenName, remember } from "./sites.js";
import { colour } from "./theme.js";
import { number } from "./words.js";

const PROFILE = { paint: paintProfile, read: readProfile, words: wordsOfProfile, table: tableOfProfile, whole: true };

export function profileFigure(view) {
  const names = view.summary.statistics.filter((s) => s.per_layer).map((s) => s.name);
  if (names.length === 0) return [];
  const { chosen, select } = chooser(view, "profile", names, "norm_input_msq");
  const fetch = async (_, panel) => {
    const runs = [{ id: view.id }, ...view.others];
    const [own, ...others] = await Promise.all(runs.map(({ id }) => get("profile", { run: id, statistic: chosen(), step: id === view.id ? view.state.to : undefined })));
    remember(view, own.sites);
    panel.note.textContent = [about(view, chosen()).help, own.band?.text].filter(Boolean).join(" ");
    return dataOf(view, own, others);
  };
  const click = (_, panel, { x }) => view.change({ layer: panel.data.sites[Math.round(x)]?.name });
  const pick = (_, panel, key) => walk(view, panel, key);
  return [{ key: "profile", title: "From the lowest layer to the highest", help: about(view, chosen()).help, height: heightOf(Math.max(...names.map((name) => about(view, name).sites))), kind: PROFILE, every: 5, fetch, choices: [select], logarithmic: true, stepped: false, chosenIn: chosenName, click, pick }];
}

function dataOf(view, own, others) {
  const at = own.at?.length ? [{ name: `step ${number(own.step)}`, colour: colour("line1"), values: own.at }] : [];
  const beside = others.map((other, i) => ({ name: view.others[i].name, colour: colour(`other${i % 4}`), values: own.sites.map((site) => profileAtSite(other, site)) }));
  const lines = [
    { name: `now (step ${number(own.latest_step)})`, colour: colour("line0"), values: own.latest },
    ...at,
    { name: `step ${number(own.first_step)}`, colour: colour("faint"), dashed: true, values: own.first },
    ...beside,
  ];
  return { sites: own.sites, unit: own.unit === "1" ? "" : own.unit, band: own.band, lines };
}

function profileAtSite({ sites, latest }, site) {
  const at = sites.findIndex(({ name }) => name === site.name);
  return at < 0 ? null : latest[at];
}

function walk(view, panel, key) {
  const { sites } = panel.data;
  const at = sites.findIndex(({ name }) => name === chosenName(view, { sites }));
  const next = key === "ArrowUp" ? at + 1 : at < 0 ? sites.length - 1 : at - 1;
  if (key !== "Enter" && sites[next]) view.change({ layer: sites[next].name });
}
