// Which view: the list of a folder's runs, or one run.

import { get, Refused, served } from "./api.js";
import { find, notice } from "./dom.js";
import { showList } from "./list.js";
import { showRun } from "./run.js";
import { watchTheme } from "./theme.js";

async function start() {
  const address = new URL(location.href);
  if (served) {
    // The cookie has it by now; an address that is copied or pictured should not.
    address.searchParams.delete("token");
    history.replaceState(null, "", address);
  }
  const wanted = address.searchParams.get("run");
  const { live, runs } = await get("runs");
  const named = address.searchParams.getAll("with").flatMap((ids) => (runs.some(({ id }) => id === ids) ? [ids] : ids.split(",")));
  // A report shows all runs that it holds.
  const beside = served ? named : runs.slice(1).map(({ id }) => id);
  if (wanted !== null) return showRun(wanted, { live, runs, beside });
  if (!live) {
    watchTheme(find("theme"), () => {});
    return showList();
  }
  if (runs.length > 0) return showRun(runs[0].id, { live, runs, beside });
  return notice(
    "Nothing to show here",
    "This run writes no run log (log=False, or STABMON_LOG=false), and this page is drawn from it.",
    "The values of the newest step are at /metrics; alerts go to the training's log.",
  );
}

function failed(error) {
  if (error instanceof Refused) {
    notice(
      "This page asks for a token",
      "The address that stabmon printed when it started has it (…/?token=…). Open that address once.",
      "A training that was started anew has a new one.",
    );
  } else notice("This cannot be shown", error.message);
}

start().catch(failed);
