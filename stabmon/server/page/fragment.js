// The view in the address, after the #: a link shows the same view, and no server sees it.

const WHOLE_NUMBERS = ["from", "to", "last", "smooth"];

export function readFragment() {
  const found = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  for (const name of WHOLE_NUMBERS) {
    if (/^\d{1,15}$/.test(found[name] ?? "")) found[name] = Number(found[name]);
    else delete found[name];
  }
  return found;
}

// The state with these changes, in the address too; undefined forgets.
export function changed(state, changes) {
  const entries = Object.entries({ ...state, ...changes }).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(entries).toString();
  history.replaceState(null, "", `${location.href.split("#")[0]}${text ? `#${text}` : ""}`);
  return Object.fromEntries(entries);
}
