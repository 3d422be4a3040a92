// Alerts with evidence, cause and remedies, and what a person said of them; events as one line each.

import { Refused, send, served } from "./api.js";
import { make } from "./dom.js";
import { agoOf } from "./summary.js";
import { capital, clock, number, plain, SEVERITIES, shown, symbol } from "./words.js";

// Under which the browser keeps how a person calls himself.
const NAME = "stabmon-name";
const NONE = served ? "None so far." : "None.";
const KINDS = { acknowledged: "Acknowledged", muted: "Muted", false_alarm: "Called a false alarm" };

const OUTCOMES = {
  sent: (time) => `at ${time}`,
  held: (time) => `not yet: kept for a message with others since ${time}`,
  waiting: (time, why) => `not yet: ${why} at ${time}; it is tried again`,
  failed: (time, why) => `not: ${why}`,
  dropped: () => "not: too many messages waited",
};

// Of one detector and one stretch of time only the newest word is a card of its own.
export function alertCards(view, alerts) {
  const told = alerts.filter(({ state }) => state === "raised");
  if (told.length === 0) return [make("p", { class: "none" }, NONE)];
  const rank = (alert) => (alert.mark ? -1 : SEVERITIES.indexOf(alert.severity));
  const standing = told.filter((alert) => alert.open).sort((a, b) => rank(b) - rank(a));
  const over = told.filter((alert) => !alert.open);
  const cards = standing.map((alert) => card(view, alert));
  if (standing.length === 0) cards.push(make("p", { class: "none" }, "None is open."));
  const toggled = (event) => (view.overOpen = event.target.open);
  if (over.length > 0) cards.push(make("details", { class: "earlier", open: view.overOpen || over.some(({ id }) => id === view.state.alert), ontoggle: toggled }, make("summary", {}, `${over.length} earlier`), ...over.map((alert) => card(view, alert))));
  return cards;
}

function card(view, alert) {
  const layer = alert.layer === null ? alert.site : `layer ${alert.layer} (${alert.site})`;
  const end = alert.open || alert.ended === null ? "" : `over at step ${number(alert.ended)}`;
  const since = `since step ${number(alert.since)}`;
  const began = alert.since_time ? make("span", {}, `${since} (${clock(alert.since_time)}`, agoOf(alert.since_time), ")") : since;
  const where = [alert.severity, plain(alert.detector), `step ${number(alert.step)}`, began, end, layer, alert.time === null ? "" : clock(alert.time)];
  const evidence = Object.entries(alert.evidence).map(([name, value]) => make("div", {}, make("dt", {}, plain(name)), make("dd", {}, number(value))));
  const runbook = alert.runbook === undefined ? `runbook/${encodeURIComponent(alert.detector)}` : alert.runbook;
  const current = view.state.alert === alert.id;
  return make(
    "article",
    { class: `alert ${alert.severity}${alert.open ? "" : " over"}${alert.mark ? " marked" : ""}`, "aria-current": current ? "true" : undefined, "data-alert": alert.id },
    make("h3", {}, make("button", { type: "button", class: "link", title: "Show its steps and its layer in all charts", onclick: () => showAlert(view, alert) }, `${symbol[alert.severity]} ${alert.headline}`)),
    make("p", { class: "where" }, ...where.filter(Boolean).flatMap((part, i) => (i ? [" · ", part] : [part])), runbook ? " · " : "", runbook ? make("a", { href: runbook }, "runbook") : ""),
    make("dl", { class: "evidence" }, ...evidence),
    alert.cause ? make("p", {}, make("b", {}, "Why: "), alert.cause) : "",
    alert.ruled_out.length > 0 ? make("p", {}, make("b", {}, "Ruled out: "), alert.ruled_out.join("; ")) : "",
    alert.remedies.length > 0 ? make("p", {}, make("b", {}, "What to do, in this order:")) : "",
    alert.remedies.length > 0 ? make("ol", {}, ...alert.remedies.map((remedy) => make("li", {}, remedy))) : "",
    wayBack(alert),
    toldOf(alert),
    served || alert.mark ? marking(view, alert) : "",
  );
}

// What there is to go back to; nothing of a run that told of no checkpoint.
function wayBack({ checkpoint, saves }) {
  if (!saves) return "";
  const text = checkpoint ? ` step ${number(checkpoint.step)}${checkpoint.name ? ` (${checkpoint.name})` : ""}.` : " none.";
  return make("p", { class: "back" }, make("b", {}, "Last checkpoint before it:"), text);
}

// Who heard of it.
function toldOf({ told = [], hushed_until: hushed }) {
  const said = told.map(({ to, outcome, time, why }) => `${capital(plain(to))} ${OUTCOMES[outcome](clock(time), why)}`);
  if (said.length === 0 && hushed) said.push(`nobody: its detector was muted until step ${number(hushed)}`);
  return said.length ? make("p", { class: "told" }, make("b", {}, "Told: "), `${said.join("; ")}.`) : "";
}

// Its steps with some before and after, on every chart; its layer beside its neighbours.
export function showAlert(view, alert) {
  const end = Math.max(alert.ended ?? alert.step, alert.step);
  const room = Math.max(25, Math.round((end - alert.since) / 2));
  view.show(alert, Math.max(1, alert.since - room), end + room);
}

function marking(view, alert) {
  const { mark } = alert;
  const name = make("input", { class: "wider", maxlength: 200, placeholder: "your name", "aria-label": "your name, kept in this browser", value: nameOf(), oninput: () => keepName(name.value) });
  const typed = (view.notes ??= new Map());
  const note = make("input", { class: "wider", maxlength: 200, placeholder: "note", "aria-label": "note", value: typed.get(alert.id) ?? "", oninput: () => typed.set(alert.id, note.value) });
  const said = make("span", { role: "status" }, ...(mark ? wordsOfMark(mark) : []));
  const sayIt = (body) => tell(view, alert, { by: name.value, note: note.value, ...body }, said);
  const button = (text, kind) => make("button", { type: "button", onclick: () => sayIt({ kind }) }, text);
  if (!served) return make("p", { class: "marking" }, said);
  if (mark) return make("p", { class: "marking" }, said, button("Take it back", "clear"));
  const steps = make("input", { type: "number", min: 1, max: 1000000, value: 1000, "aria-label": "for how many steps to mute" });
  const mute = () => (steps.value && steps.checkValidity() ? sayIt({ kind: "mute", steps: Number(steps.value) }) : (said.textContent = "Not saved: give a whole number of steps, 1 to 1,000,000."));
  return make("p", { class: "marking" }, button("Acknowledge", "acknowledge"), make("span", { class: "mute" }, make("button", { type: "button", onclick: mute }, "Mute for"), steps, " steps"), button("False alarm", "false_alarm"), name, note, said);
}

// What people typed stands apart: a letter that turns the direction of writing turns no other words.
function wordsOfMark({ kind, until, by, time, note }) {
  const typed = (before, text) => (text ? [before, make("bdi", {}, text)] : []);
  return [KINDS[kind], until ? ` until step ${number(until)}` : "", ...typed(" by ", by), `, ${clock(time)}`, ...typed(": ", note), "."];
}

// Where the browser keeps nothing, the name is asked for each time.
function nameOf() {
  try {
    return localStorage.getItem(NAME) ?? "";
  } catch {
    return "";
  }
}

function keepName(name) {
  try {
    localStorage.setItem(NAME, name);
  } catch {
    // private windows of some browsers
  }
}

async function tell(view, alert, body, said) {
  said.textContent = "Saving …";
  try {
    const { alerts } = await send(`alerts/${encodeURIComponent(alert.id)}/mark`, { run: view.id }, body);
    view.notes.delete(alert.id);
    view.take(alerts);
  } catch (error) {
    said.textContent = `Not saved: ${reasonOf(error)}`;
  }
}

function reasonOf(error) {
  if (error instanceof Refused) return "the token is no longer good. Open the address that stabmon printed.";
  return error.status === undefined ? "the server cannot be reached." : error.message;
}

// Of what the model was found to be, in words.
const DETAILS = {
  description: (sentence) => sentence,
  tokens: (which) => `tokens that count in means: ${which}`,
  looks_ahead: (sees) => (sees ? "sees tokens that it is to predict" : "does not see ahead"),
};

export function eventLines(events) {
  const known = events.filter(({ kind }) => kind !== "not_seen");
  const lines = known.slice(0, 50).map(({ step, kind, detail }) => {
    const more = Object.entries(detail).map(([name, value]) => DETAILS[name]?.(value) ?? `${plain(name)} ${shown(value)}`);
    return make("li", {}, `step ${number(step)}: ${plain(kind)}${more.length ? ` (${more.join(", ")})` : ""}`);
  });
  return lines.length ? lines : [make("li", {}, NONE)];
}
