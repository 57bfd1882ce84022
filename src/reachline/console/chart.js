// Charts of a line's page by uPlot. Without the library (it is fetched at set-up) `charts` is null and the page says so.

import { latency, percent } from "./format.js";
import { colour } from "./theme.js";

const HEIGHT = 186;

let library = null;

/** The library, loaded once; null when it is not there. */
export async function charts() {
  if (library === null) {
    library = import("./vendor/uPlot.esm.js").then((module) => {
      document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href: new URL("vendor/uPlot.min.css", import.meta.url).href }));
      return module.default;
    }, () => null);
  }
  return library;
}

/** What the four charts show: title, series (key, label, colour variable, dash), and how a value reads. */
const PANELS = [
  { title: "Round trip", read: latency, series: [["p95", "P95", "--p95", []], ["p50", "P50", "--p50", [5, 4]]] },
  { title: "Loss and timeouts", read: percent, least: 0.02, series: [["timeout", "timeouts", "--loss", []], ["loss", "packets lost", "--loss2", [5, 4]]] },
  { title: "Weight, with its decisions", read: (value) => (value === null ? "–" : String(Math.round(value))), least: 5, stepped: true, marks: true, series: [["weight", "weight", "--p50", []]] },
];

/** The charts of one line in one container; `update` redraws, `close` frees them. */
export class Charts {
  #plots;
  #container;
  #decisions = [];
  #sizes;

  constructor(uPlot, container) {
    this.#container = container;
    this.#plots = PANELS.map((panel) => this.#plot(uPlot, panel));
    this.#sizes = new ResizeObserver(() => this.#fit());
    this.#sizes.observe(container);
  }

  /** @param {Array<object>} history points {at, p50, p95, loss, timeout, weight}, oldest first */
  update(history, decisions) {
    this.#decisions = decisions;
    const times = history.map((point) => point.at);
    for (const { plot, panel } of this.#plots) {
      plot.setData([times, ...panel.series.map(([key]) => history.map((point) => point[key] ?? null))]);
    }
  }

  close() {
    this.#sizes.disconnect();
    for (const { plot } of this.#plots) plot.destroy();
    this.#container.replaceChildren();
  }

  #plot(uPlot, panel) {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = panel.title;
    figure.append(caption);
    this.#container.append(figure);
    const plot = new uPlot(this.#options(uPlot, panel, figure), [[]], figure);
    return { plot, panel, figure };
  }

  #options(uPlot, panel, figure) {
    const axis = { stroke: () => colour("--quiet"), grid: { stroke: () => colour("--rule"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return {
      width: figure.clientWidth || 320, height: HEIGHT,
      cursor: { sync: { key: "line" }, drag: { x: true, y: false }, points: { size: 7 } },
      legend: { live: true },
      scales: { x: { time: true }, y: { range: (_plot, _low, high) => [0, Math.max(panel.least ?? 0.001, (high || 0) * 1.15)] } },
      series: [{ value: (_plot, at) => (at ? timeOfDay(at, true) : "–") },
        ...panel.series.map(([, label, stroke, dash]) => ({
          label, dash, stroke: () => colour(stroke), width: 1.75, points: { show: false }, spanGaps: false,
          value: (_plot, value) => panel.read(value),
          paths: panel.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
        }))],
      axes: [{ ...axis, space: 76, size: 28, values: (_plot, ticks, _axis, _space, step) => ticks.map((tick) => timeOfDay(tick, step < 60)) }, { ...axis, size: 62, space: 26, values: (_plot, ticks) => ticks.map((tick) => panel.read(tick)) }],
      hooks: panel.marks ? { draw: [(plot) => this.#mark(plot, colour("--mark"), colour("--quiet"))] } : {},
    };
  }

  /** A dashed line where a decision was made, numbered from the oldest one in sight. */
  #mark(plot, stroke, text) {
    const pen = plot.ctx;
    const { left, top, width, height } = plot.bbox;
    const scale = devicePixelRatio || 1;
    pen.save();
    pen.strokeStyle = stroke;
    pen.fillStyle = text;
    pen.textAlign = "left";
    pen.setLineDash([3 * scale, 3 * scale]);
    pen.lineWidth = scale;
    pen.font = `${10 * scale}px system-ui, sans-serif`;
    let lastLabel = -Infinity;
    for (const { at, label } of this.#decisions) {
      const x = plot.valToPos(at, "x", true);
      if (x < left || x > left + width) continue;
      pen.beginPath();
      pen.moveTo(x, top);
      pen.lineTo(x, top + height);
      pen.stroke();
      if (x - lastLabel < 14 * scale) continue;
      pen.fillText(label, x + 3 * scale, top + 10 * scale);
      lastLabel = x;
    }
    pen.restore();
  }

  #fit() {
    for (const { plot, figure } of this.#plots) {
      const width = figure.clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: HEIGHT });
    }
  }
}

function timeOfDay(unix, seconds) {
  return new Date(unix * 1000).toLocaleTimeString([], { hour12: false, hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}) });
}
