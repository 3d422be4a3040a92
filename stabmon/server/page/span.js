// Which steps are shown, and where they lie on the axis. Everything is kept in steps, also where the axis shows time.

export const known = ({ summary }) => [Math.min(summary.first_step || 1, summary.step || 1), Math.max(summary.step, 1)];

// First and last step shown. Without `to` the view goes with the run.
export function span(view) {
  const [least, most] = known(view);
  const { from, to, last } = view.state;
  const end = Math.max(least, Math.min(to ?? most, most));
  const begin = last ? end - last + 1 : (from ?? least);
  return [Math.max(least, Math.min(begin, end)), end];
}

// What the API is asked for: a little more than is shown, so that lines run to the edge.
export function asked(view) {
  const { from, to, last } = view.state;
  const [begin, end] = span(view);
  const more = Math.max(50, Math.ceil((end - begin) / 20));
  const whole = from === undefined && last === undefined;
  return { from: whole ? undefined : Math.max(0, begin - more), to: to === undefined ? undefined : end + more };
}

// The changes of state that show those steps.
export function spanTo(view, begin, end) {
  const [least, most] = known(view);
  const width = Math.max(2, Math.round(end - begin));
  const from = Math.max(least, Math.min(Math.round(begin), most - width));
  const to = from + width;
  return { from: from <= least ? undefined : from, to: to >= most ? undefined : to, last: undefined, alert: undefined };
}

// `factor` < 1 shows fewer steps; `share` of the width stays where it is.
export function zoomed(view, factor, share = 0.5) {
  const [begin, end] = span(view);
  const width = Math.min((end - begin) * factor, known(view)[1] - known(view)[0]);
  const fixed = begin + share * (end - begin);
  const at = Math.max(known(view)[0], fixed - share * width);
  return spanTo(view, at, at + width);
}

export function panned(view, share) {
  const [begin, end] = span(view);
  const [least, most] = known(view);
  const by = Math.max(least - begin, Math.min(share * (end - begin), most - end));
  return spanTo(view, begin + by, end + by);
}

// Between points of two rising lists; beyond them on the line of the last two.
function between(xs, ys, x) {
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= x) low = middle;
    else high = middle;
  }
  const share = xs[high] === xs[low] ? 0 : (x - xs[low]) / (xs[high] - xs[low]);
  return ys[low] + share * (ys[high] - ys[low]);
}

// `at(step)` on the axis, `step(x)` back, and the axis' ends.
export function scaleOf(view) {
  const [begin, end] = span(view);
  const { steps, times } = view.clock ?? { steps: [], times: [] };
  if (view.state.x !== "time" || times.length < 2) {
    const half = begin === end ? 0.5 : 0;
    return { type: "value", at: (step) => step, step: (x) => x, min: begin - half, max: end + half };
  }
  const at = (step) => 1000 * between(steps, times, step);
  return { type: "time", at, step: (x) => between(times, steps, x / 1000), min: at(begin), max: Math.max(at(end), at(begin) + 1) };
}

// Steps beside times that only rise: where the clock of the training was set back it stands still here.
export function clockOf({ steps, times }) {
  let latest = -Infinity;
  return { steps, times: (times ?? []).map((time) => (latest = Math.max(latest, time))) };
}
