// What the server knows. Paths are relative, so that the page also works behind a proxy's prefix.

// Whether there is a server to ask again and to tell; a report has none.
export const served = true;
// What it throws where the token is missing or wrong.
export const Refused = class extends Error {};

// A list becomes a parameter that is given several times.
function addressOf(path, parameters) {
  const pairs = Object.entries(parameters).flatMap(([name, value]) => [value].flat().map((one) => [name, one]));
  return `api/v1/${path}?${new URLSearchParams(pairs.filter(([, value]) => value !== undefined))}`;
}

export async function get(path, parameters = {}) {
  return answerOf(await fetch(addressOf(path, parameters), { cache: "no-store" }));
}

export async function send(path, parameters, body) {
  const headers = { "content-type": "application/json" };
  return answerOf(await fetch(addressOf(path, parameters), { method: "POST", headers, body: JSON.stringify(body) }));
}

// Where a file with every row can be had; null where there is none.
export const fileOf = (path, parameters) => addressOf(path, parameters);

async function answerOf(response) {
  if (response.ok) return response.json();
  if (response.status === 401) throw new Refused("token");
  const { detail } = await response.json().catch(() => ({ detail: response.statusText }));
  const text = typeof detail === "string" ? detail : JSON.stringify(detail);
  throw Object.assign(new Error(text), { status: response.status });
}

// Calls `on.rows(news)` when there are new rows, `on.gone(why)` when the run log cannot be read, `on.lost()` and
// `on.found()` as the connection goes and comes.
// Nothing is asked for while nobody looks.
export function follow(run, on) {
  let [source, again] = [null, 0];
  const open = () => {
    clearTimeout(again);
    source?.close();
    source = new EventSource(addressOf("stream", { run }));
    source.addEventListener("rows", (event) => on.rows(JSON.parse(event.data)));
    source.addEventListener("gone", (event) => on.gone(event.data));
    source.addEventListener("open", on.found);
    source.addEventListener("error", () => {
      // The browser tries again by itself, but not after an answer that is no stream.
      if (source.readyState === EventSource.CLOSED) again = setTimeout(open, 3000);
      on.lost();
    });
  };
  document.addEventListener("visibilitychange", () => {
    clearTimeout(again);
    source?.close();
    if (!document.hidden) open();
  });
  open();
}
