// Draws each [data-chart] with uPlot. Its attribute holds the JSON that the table beside it was made of; where scripts don't run,
// the table is all there is. Arrow keys, Home and End read the values aloud. Unknown is null: a gap, never 0.

/* global uPlot */

const COLOURS = ["--accent", "--warn", "--busy", "--bad"];
const HEIGHT_PX = 220;
// One line of labels below the ticks; uPlot would leave room for two.
const AXIS_PX = 34;
const REFRESH_EVERY_MS = 15_000;
const drawn = new Map();
// Days as the page's language writes them.
const LANGUAGE = document.documentElement.lang.startsWith("zh") ? "zh-CN" : "en-GB";

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// So many digits after the point distinguish the ticks of an axis.
function digitsOf(values) {
  const step = values.length > 1 ? Math.abs(values[1] - values[0]) : 1;
  return step > 0 ? Math.min(10, Math.max(2, Math.ceil(-Math.log10(step)))) : 2;
}

function short(value, digits = 2) {
  return value === null || value === undefined ? "–" : new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: digits }).format(value);
}

// Hours of the day by the 24 h clock of the tenant's zone, with seconds where minutes would repeat themselves; the date with it where
// the chart is longer than a day, alone from a week on.
function clock(spec) {
  const [first, last] = spec.span ?? [spec.x[0], spec.x.at(-1)];
  const long = last - first > 86400;
  const date = long ? { day: "numeric", month: "short" } : {};
  const seconds = last - first < 600 ? { second: "2-digit" } : {};
  const time = last - first > 7 * 86400 ? {} : { hour: "2-digit", minute: "2-digit", ...seconds };
  const format = new Intl.DateTimeFormat(LANGUAGE, { timeZone: spec.zone, hourCycle: "h23", ...date, ...time });
  return (_, moments) => moments.map((seconds) => format.format(new Date(seconds * 1000)));
}

// A bar that is not there could be 0: where nothing is known, the place is shaded from top to bottom.
function shadeUnknown(plot) {
  const { ctx, bbox, data } = plot;
  const width = Math.abs(plot.valToPos(1, "x", true) - plot.valToPos(0, "x", true));
  ctx.save();
  ctx.fillStyle = colour("--line");
  ctx.globalAlpha = 0.55;
  for (const place of data[0]) {
    if (data.slice(1).every((values) => values[place] === null)) {
      ctx.fillRect(plot.valToPos(place, "x", true) - width * 0.5, bbox.top, width, bbox.height);
    }
  }
  ctx.restore();
}

// Days are drawn by their place, so that one of 23 hours is as wide as the others; moments by time, in the tenant's zone.
function options(spec, width) {
  const text = colour("--text-soft");
  const line = { stroke: colour("--line"), width: 1 };
  const font = `12px ${colour("--font")}`;
  const ordinal = spec.kind === "bars";
  const axis = { stroke: text, grid: line, ticks: line, font };
  return {
    width,
    height: HEIGHT_PX,
    legend: { show: false },
    hooks: ordinal ? { drawClear: [shadeUnknown] } : {},
    cursor: { y: false, drag: { x: false, y: false } },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), spec.zone),
    scales: {
      x: { time: !ordinal, range: ordinal ? [-0.6, spec.labels.length - 0.4] : (spec.span ?? undefined) },
      y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? high * 1.08 : 1] },
    },
    axes: [
      ordinal ? { ...axis, size: AXIS_PX, grid: { show: false }, values: (_, places) => places.map((place) => spec.ticks[place] ?? ""), incrs: [1, 2, 5, 10] } : { ...axis, size: AXIS_PX, space: 90, values: clock(spec) },
      { ...axis, size: 56, values: (_, values) => values.map((value) => short(value, digitsOf(values))) },
    ],
    series: [
      {},
      ...spec.series.map((series, index) => ({
        label: series.name,
        stroke: colour(COLOURS[index % COLOURS.length]),
        fill: ordinal ? colour(COLOURS[index % COLOURS.length]) : undefined,
        width: ordinal ? 0 : 2,
        dash: index === 0 ? undefined : [6, 4],
        spanGaps: false,
        // A value between two that are not known is a curve of one point.
        points: ordinal ? { show: false } : { show: true, size: 5, fill: colour(COLOURS[index % COLOURS.length]) },
        paths: ordinal ? uPlot.paths.bars({ size: [0.7, 48] }) : undefined,
      })),
    ],
  };
}

function draw(element) {
  const spec = JSON.parse(element.dataset.chart);
  const x = spec.kind === "bars" ? spec.labels.map((_, place) => place) : spec.x;
  drawn.get(element)?.plot.destroy();
  const plot = new uPlot(options(spec, element.clientWidth), [x, ...spec.series.map((series) => series.values)], element);
  drawn.set(element, { plot, spec, place: null });
  element.dataset.state = "drawn";
}

function announce(element, place) {
  const chart = drawn.get(element);
  chart.place = place;
  const values = chart.spec.series.map((series) => `${series.name}: ${series.words[place]}`).join(", ");
  document.getElementById(element.dataset.reading).textContent = `${chart.spec.labels[place]}. ${values}`;
}

function read(element, place) {
  const { plot } = drawn.get(element);
  plot.setCursor({ left: plot.valToPos(plot.data[0][place], "x"), top: 0 });
  announce(element, place);
}

const STEPS = {
  ArrowRight: (place, last) => (place === null ? 0 : Math.min(place + 1, last)),
  ArrowLeft: (place, last) => (place === null ? last : Math.max(place - 1, 0)),
  Home: () => 0,
  End: (_, last) => last,
};

function press(event) {
  const element = event.currentTarget;
  const step = STEPS[event.key];
  const last = drawn.get(element).spec.labels.length - 1;
  if (step && last >= 0) {
    event.preventDefault();
    read(element, step(drawn.get(element).place, last));
  }
}

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = drawn.get(target)?.plot;
    if (plot && plot.width !== target.clientWidth && target.clientWidth > 0) {
      plot.setSize({ width: target.clientWidth, height: HEIGHT_PX });
    }
  }
});

function redraw() {
  for (const element of drawn.keys()) {
    draw(element);
  }
}

function start(element) {
  draw(element);
  element.addEventListener("keydown", press);
  element.addEventListener("mousemove", () => {
    const place = drawn.get(element).plot.cursor.idx;
    if (place !== null && place !== undefined && place !== drawn.get(element).place) {
      announce(element, place);
    }
  });
  resized.observe(element);
}

document.querySelectorAll("[data-chart]").forEach(start);

// Charts within [data-refresh] are drawn again from that address. Only values are replaced: an open table stays open, and the
// focus where it is. A chart that had nothing to show is replaced as a whole.
function take(figure, fresh) {
  const [chart, news] = [figure, fresh].map((part) => part.querySelector("[data-chart]"));
  if (!chart || !news) {
    figure.replaceWith(fresh);
    fresh.querySelectorAll("[data-chart]").forEach(start);
    return;
  }
  chart.dataset.chart = news.dataset.chart;
  draw(chart);
  figure.querySelector("tbody").replaceWith(fresh.querySelector("tbody"));
}

async function refresh(container) {
  if (document.hidden) {
    return;
  }
  try {
    const answer = await fetch(container.dataset.refresh, { headers: { "HX-Request": "true" } });
    if (answer.ok && !answer.redirected) {
      const fresh = [...new DOMParser().parseFromString(await answer.text(), "text/html").querySelectorAll("figure")];
      [...container.querySelectorAll("figure")].forEach((figure, place) => fresh[place] && take(figure, fresh[place]));
    }
  } catch {
    // The next try may find the network again; what is drawn says until when it is.
  }
}

for (const container of document.querySelectorAll("[data-refresh]")) {
  setInterval(() => refresh(container), REFRESH_EVERY_MS);
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
new MutationObserver(redraw).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
