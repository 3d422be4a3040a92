// Alerts with evidence, cause and remedies; events as one line each.

import { make } from "./dom.js";
import { clock, number, SEVERITIES } from "./words.js";

export function alertCards(alerts) {
  if (alerts.length === 0) return [make("p", {}, "None so far.")];
  const rank = (alert) => SEVERITIES.indexOf(alert.severity);
  const standing = alerts.filter((alert) => alert.open).sort((a, b) => rank(b) - rank(a));
  const over = alerts.filter((alert) => !alert.open);
  const cards = standing.map(card);
  if (standing.length === 0) cards.push(make("p", {}, "None is open."));
  if (over.length > 0) {
    cards.push(make("details", {}, make("summary", {}, `${over.length} earlier`), ...over.map(card)));
  }
  return cards;
}

function card(alert) {
  const layer = alert.layer === null ? alert.site : `layer ${alert.layer} (${alert.site})`;
  const where = [alert.severity, alert.detector, `step ${number(alert.step)}`, `since step ${number(alert.since)}`, layer, clock(alert.time)];
  const evidence = Object.entries(alert.evidence).map(([name, value]) =>
    make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, number(value))),
  );
  if (alert.state === "cleared") {
    return make("article", { class: "alert healthy over" }, make("h3", {}, `Over: ${alert.detector}`), make("p", { class: "where" }, where.slice(2, 3).join()));
  }
  return make(
    "article",
    { class: `alert ${alert.severity}${alert.open ? "" : " over"}` },
    make("h3", {}, alert.headline),
    make("p", { class: "where" }, where.filter(Boolean).join(" · "), " · ", make("a", { href: `runbook/${encodeURIComponent(alert.detector)}` }, "runbook")),
    make("dl", { class: "evidence" }, ...evidence),
    alert.cause ? make("p", {}, make("b", {}, "Why: "), alert.cause) : "",
    alert.ruled_out.length > 0 ? make("p", {}, make("b", {}, "Ruled out: "), alert.ruled_out.join("; ")) : "",
    alert.remedies.length > 0 ? make("p", {}, make("b", {}, "What to do, in this order:")) : "",
    make("ol", {}, ...alert.remedies.map((remedy) => make("li", {}, remedy))),
  );
}

export function eventLines(events) {
  return events.slice(0, 20).map((event) => {
    const detail = Object.entries(event.detail).map(([name, value]) => `${name} ${typeof value === "number" ? number(value) : value}`);
    return make("li", {}, `step ${number(event.step)}: ${event.kind.replaceAll("_", " ")}${detail.length ? ` (${detail.join(", ")})` : ""}`);
  });
}
