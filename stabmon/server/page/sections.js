// The charts of a run in the order in which a person looks.

import { make } from "./dom.js";
import { anyCurve, anyPicture, curvesFigure, layerFigures, lossFigure, pictureFigures } from "./figures.js";
import { scoreFigures } from "./judges.js";
import { panelOf } from "./panel.js";
import { profileFigure } from "./profiles.js";

export const titled = (text, ...children) => make("section", { "aria-label": text }, make("h2", {}, text), ...children);

// What an alert is about, below the toolbar, and read aloud: its layer, or the loss.
export function bringIntoView({ panels, state, layerPart, layerName }) {
  const loss = panels.find(({ key }) => key === "loss");
  const [part, heading] = state.layer === undefined ? [loss?.figure, loss?.heading] : [layerPart, layerName];
  if (!part) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  part.scrollIntoView();
}

export function chartSections(view) {
  const grid = (...figures) => {
    const panels = figures.flat().map((made) => panelOf(view, made));
    view.panels.push(...panels);
    return make("div", { class: "charts" }, ...panels.map(({ figure }) => figure));
  };
  view.layerName = make("h2", {}, "");
  view.layerPart = make("section", { id: "layer", "aria-label": "The chosen layer" }, view.layerName, grid(layerFigures(view)));
  const health = { logarithmic: true, height: 190 };
  return [
    make("section", { "aria-label": "Loss" }, grid(lossFigure(view))),
    titled("Layer by layer", make("p", { class: "lead" }, "Rows are layers, from the lowest at the bottom; colours are logarithmic. Click a layer to see it beside its neighbours."), grid(pictureFigures(view))),
    view.layerPart,
    titled("Profile", grid(profileFigure(view), anyPicture(view))),
    titled("Updates", grid(
      curvesFigure(view, "change", "How far one update moves the output", { total_output_change_ratio: "relative output change" }, { ...health, help: "RMS change of the output on the probe, relative to the output." }),
      curvesFigure(view, "kl", "KL divergence by one update", { output_change_kl: "KL per token" }, { ...health, help: "Between the predictions before and after; above .2 an update is a shock." }),
      curvesFigure(view, "trust", "Trust ratio", { trust_ratio: "actual / predicted change of loss" }, { ...health, logarithmic: false, atOne: true, help: "1: the step did what the gradient promised; below .3 it overshoots." }),
      curvesFigure(view, "context", "Common or context", { output_change_context_ratio: "position-dependent part of the change", context_share: "position-dependent output", probe_context_share: "the same on the probe" }, { ...health, help: "Towards 0 every token gets the same answer." }),
    )),
    titled("Scores", grid(scoreFigures(view))),
    titled("More", grid(anyCurve(view))),
  ].filter((section) => section.querySelector("figure"));
}
