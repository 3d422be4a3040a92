// Lines as shapes. A point stands for several steps: a band holds its lowest and highest value, the line runs through
// the middle, and to both ends of a point that reaches far: no spike is lost. A band is painted in a fraction of the
// time of a line that goes up and down.

const DOT = 2.5;
const MOST_DOTS = 200;
// So many times the usual height of the band, and so many pixels.
const FAR = { times: 3, pixels: 4 };
// So many times the usual distance of two points is a gap, over which no line is drawn.
const GAP = 10;

// Places of the points that come after a gap. What is usual is so in all of the run and here: a log that tells every
// step first and every hundredth later has no gap.
export function gapsOf(steps) {
  const apart = steps.slice(1).map((step, i) => step - steps[i]);
  const median = (distances) => distances.sort((a, b) => a - b)[distances.length >> 1];
  const most = GAP * median([...apart]);
  const far = (distance, i) => distance > most && distance > GAP * median(apart.slice(Math.max(0, i - 2), i + 3));
  return new Set(apart.flatMap((distance, i) => (far(distance, i) ? [i + 1] : [])));
}

// [step, low, high] -> [x, y of low, y of high] in pixels of the plot; null where a value cannot be shown.
function placesOf(points, { scale, ends, log }, { x, y, width, height }) {
  const form = log ? Math.log10 : (value) => value;
  const [least, room] = [form(ends.min), form(ends.max) - form(ends.min)];
  const up = (value) => y + height * (1 - (form(value) - least) / room);
  return points.map(([step, low, high]) => (high === null ? null : [x + (width * (scale.at(step) - scale.min)) / (scale.max - scale.min), up(low), up(high)]));
}

// Stretches without a gap.
function runsOf(places, { connected, gaps }) {
  const found = [[]];
  places.forEach((place, i) => {
    if (gaps.has(i) || !(place || connected)) found.push([]);
    if (place) found.at(-1).push(place);
  });
  return found;
}

const middle = ([x, low, high]) => [x, (low + high) / 2];
const reach = ([, low, high]) => low - high;

function throughMiddle(run) {
  const usual = run.map(reach).sort((a, b) => a - b)[run.length >> 1];
  const far = Math.max(FAR.times * usual, FAR.pixels);
  return run.flatMap((place) => (reach(place) > far ? [[place[0], place[1]], [place[0], place[2]], middle(place)] : [middle(place)]));
}

// item: { points, gaps, colour, width, dashed, dots, faint, connected }; the shapes that ECharts draws of it.
export function shapesOf(item, axes, plot) {
  const style = { stroke: item.colour, fill: "none", lineWidth: item.width, lineDash: item.dashed ? [5, 4] : undefined, lineJoin: "bevel", opacity: item.faint ? 0.35 : 1 };
  const shapes = runsOf(placesOf(item.points, axes, plot), item).filter((run) => run.length).flatMap((run) => {
    const edge = (at) => run.map((place) => [place[0], place[at]]);
    const band = () => ({ type: "polygon", shape: { points: [...edge(2), ...edge(1).reverse()] }, style: { fill: item.colour, opacity: item.faint ? 0.2 : 0.4 } });
    const alone = (item.dots && run.length <= MOST_DOTS) || run.length === 1 ? run.map(middle) : [];
    return [
      ...(run.some(reach) ? [band()] : []),
      ...(run.length > 1 ? [{ type: "polyline", shape: { points: throughMiddle(run) }, style }] : []),
      ...alone.map(([cx, cy]) => ({ type: "circle", shape: { cx, cy, r: DOT }, style: { fill: item.colour } })),
    ];
  });
  return { type: "group", children: shapes };
}
