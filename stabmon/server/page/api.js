// What the server knows. Paths are relative, so that the page also works behind a proxy's prefix.

export class Refused extends Error {}

export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== undefined));
  const response = await fetch(`api/v1/${path}?${query}`, { cache: "no-store" });
  if (response.ok) return response.json();
  const { detail } = await response.json().catch(() => ({ detail: response.statusText }));
  if (response.status === 401) throw new Refused("token");
  throw Object.assign(new Error(String(detail)), { status: response.status });
}

// Calls `on.rows(news)` when there are new rows, `on.lost()` and `on.found()` as the connection goes and comes.
// Nothing is asked for while nobody looks.
export function follow(run, on) {
  let source = null;
  const open = () => {
    source = new EventSource(`api/v1/stream?${new URLSearchParams({ run })}`);
    source.addEventListener("rows", (event) => on.rows(JSON.parse(event.data)));
    source.addEventListener("open", on.found);
    source.addEventListener("error", on.lost);
  };
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (!document.hidden) open();
  });
  open();
}
