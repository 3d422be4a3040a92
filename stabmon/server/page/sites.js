// Which layer is looked at. A layer is chosen in one picture and found again in those of other statistics.

import { get } from "./api.js";

// The site of a statistic that belongs to what was chosen: itself, or one in the same block.
export function siteFor(view, sites) {
  const { layer } = view.state;
  if (layer === undefined) return undefined;
  const exact = sites.find(({ name }) => name === layer);
  if (exact) return exact;
  const number = view.places.get(layer)?.layer ?? null;
  return number === null ? undefined : sites.find((site) => site.layer === number);
}

export const chosenName = (view, { sites }) => siteFor(view, sites)?.name;

export function remember(view, sites) {
  for (const site of sites) view.places.set(site.name, site);
  return sites;
}

// Where a statistic is taken, in forward order.
export async function sitesOf(view, statistic) {
  if (!view.sites.has(statistic)) view.sites.set(statistic, remember(view, (await get("profile", { run: view.id, statistic })).sites));
  return view.sites.get(statistic);
}

// The chosen one between its neighbours, below it first.
export function neighbours(view, sites) {
  const at = sites.indexOf(siteFor(view, sites));
  return at < 0 ? [] : [sites[at - 1], sites[at], sites[at + 1]];
}
