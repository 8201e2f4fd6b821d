"use strict";
// A chart of lines over one horizontal axis, drawn by uPlot: drag to zoom, double click to reset,
// point or press arrow keys to read values.

/** Charts that are zoomed along together. */
class Linked {
  constructor() {
    this.charts = [];
    this.key = `linked-${Linked.count++}`;
  }

  zoom(x) {
    for (const chart of this.charts) chart.show(x, chart.view.y);
  }

  redraw() {
    for (const chart of this.charts) chart.draw();
  }
}
Linked.count = 0;

/**
 * `spec`: `title`; `describe`, what it shows in a sentence; `x` and `y`, each with `label`,
 * `format` and the range `min` to `max`, `y` perhaps `log`; `lines`, each with `name`, `index` of
 * colour and shape, `dash`, `marks` and `points` of `x`, `y`, `min`, `max`; `reference`, a line
 * that was calculated, of a `name` and `corners`; `shown`, whether a line is to be seen.
 */
class Chart {
  constructor(spec, linked) {
    this.spec = spec;
    this.linked = linked;
    this.whole = { x: [spec.x.min, spec.x.max], y: [spec.y.min, spec.y.max] };
    this.view = { ...this.whole };
    this.reset = button("show all", () => this.showAll(), { class: "reset", hidden: "" });
    this.plot = element("div", {
      class: "plot",
      tabindex: "0",
      role: "img",
      "aria-label": `${spec.describe} Arrow keys read the values, plus and minus zoom.`,
    });
    this.tip = new Tip(this);
    const caption = element("figcaption", {}, element("b", {}, spec.title), this.reset);
    this.figure = element("figure", { class: "chart" }, caption, this.plot, valuesOf(spec));
    this.plot.append(this.tip.element);
    this.plot.addEventListener("keydown", (event) => this.press(event));
    this.plot.addEventListener("blur", () => this.tip.hide());
    new ResizeObserver(() => this.fit()).observe(this.plot);
    linked.charts.push(this);
  }

  /** Draws everything anew, with the colours that the page has now. */
  draw() {
    this.drawn?.destroy();
    this.lines = this.spec.lines.filter((line) => this.spec.shown(line));
    this.drawn = new uPlot(this.options(), this.columns(), this.plot);
    this.drawn.over.addEventListener("dblclick", () => this.showAll());
    this.drawn.over.append(this.tip.line);
  }

  /** Shows what lies within these ranges. */
  show(x, y) {
    this.view = { x, y };
    this.reset.hidden = String([x, y]) === String([this.whole.x, this.whole.y]);
    this.drawn?.batch(() => {
      this.drawn.setScale("x", { min: x[0], max: x[1] });
      this.drawn.setScale("y", { min: y[0], max: y[1] });
    });
  }

  showAll() {
    this.show(this.whole.x, this.whole.y);
    this.linked.zoom(this.whole.x);
  }

  /** Fits it into the width there is. */
  fit() {
    if (!this.drawn) this.draw();
    else if (this.plot.clientWidth !== this.drawn.width) this.drawn.setSize(this.size());
  }

  size() {
    return { width: Math.max(this.plot.clientWidth, 200), height: this.spec.height ?? 270 };
  }

  /** The places of all lines, and each line's heights there. */
  columns() {
    const corners = this.spec.reference?.corners ?? [];
    const places = this.lines.flatMap((line) => line.points.map((point) => point.x));
    this.places = distinct(places).sort((a, b) => a - b);
    const xs = distinct([...this.places, ...corners.map(([x]) => x)]).sort((a, b) => a - b);
    const column = (points) => {
      const heights = new Map(points);
      return xs.map((x) => heights.get(x) ?? null);
    };
    const measured = this.lines.map((line) => column(line.points.map(({ x, y }) => [x, y])));
    return [xs, column(corners), ...measured];
  }

  options() {
    const { x, y } = this.spec;
    const faint = colour("faint");
    const axis = (spec) => ({
      stroke: faint,
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      label: spec.label,
      labelSize: 20,
      values: (_, splits) => splits.map((value) => (value === null ? "" : spec.format(value))),
      ticks: { show: false },
      border: { show: true, stroke: colour("rule"), width: 1 },
      grid: { stroke: colour("grid"), width: 1 },
    });
    const drawn = (line) => ({
      stroke: seriesColour(line.index),
      width: line.marks ? 2.2 : 1.5,
      dash: dashes(line.dash),
      spanGaps: true,
      points: { show: false },
    });
    const calculated = { stroke: faint, width: 1.5, dash: [6, 5], spanGaps: true, points: { show: false } };
    return {
      ...this.size(),
      legend: { show: false },
      padding: [10, 14, 0, 0],
      cursor: {
        drag: { x: true, y: true, uni: 24, setScale: false },
        points: { show: false },
        x: false,
        y: false,
        sync: {
          key: this.linked.key,
          filters: { pub: (type) => type === "mousemove" || type === "mouseleave" },
        },
      },
      scales: {
        x: { time: false, range: () => this.view.x },
        y: { distr: y.log ? 3 : 1, range: () => this.view.y },
      },
      axes: [
        { ...axis(x), size: 30, grid: { show: false } },
        { ...axis(y), size: 56, ...(y.log && { splits: logSplits, filter: (_, splits) => splits }) },
      ],
      series: [{}, calculated, ...this.lines.map(drawn)],
      hooks: {
        drawAxes: [(plot) => this.drawSpreads(plot)],
        drawSeries: [(plot, index) => this.drawMarks(plot, this.lines[index - 2])],
        setCursor: [(plot) => this.point(plot)],
        setSelect: [(plot) => this.select(plot)],
      },
    };
  }

  /** From least to greatest: a band under a full line, whiskers on a dashed one. */
  drawSpreads(plot) {
    const place = (x, y) => [plot.valToPos(x, "x", true), plot.valToPos(y, "y", true)];
    this.within(plot, 0, (ctx) => {
      for (const { points, dash, index } of this.lines) {
        ctx.beginPath();
        if (dash === 0) {
          for (const { x, max } of points) ctx.lineTo(...place(x, max));
          for (const { x, min } of [...points].reverse()) ctx.lineTo(...place(x, min));
          ctx.closePath();
          ctx.globalAlpha = 0.18;
          ctx.fillStyle = seriesColour(index);
          ctx.fill();
        } else {
          for (const { x, min, max } of points) {
            ctx.moveTo(...place(x, min));
            ctx.lineTo(...place(x, max));
          }
          ctx.globalAlpha = 0.8;
          ctx.lineWidth = 1.5 * uPlot.pxRatio;
          ctx.strokeStyle = seriesColour(index);
          ctx.stroke();
        }
      }
    });
  }

  /** A mark at each point of `line`: filled if the line is full, else a ring around. */
  drawMarks(plot, line) {
    if (!line?.marks) return;
    const ring = line.dash > 0;
    const radius = (ring ? 6 : 4) * uPlot.pxRatio;
    // Those at the edge are to be seen as a whole.
    this.within(plot, 8, (ctx) => {
      ctx.lineWidth = (ring ? 1.8 : 2.4) * uPlot.pxRatio;
      ctx.strokeStyle = ring ? seriesColour(line.index) : colour("paper");
      ctx.fillStyle = seriesColour(line.index);
      for (const { x, y } of line.points) {
        const at = [plot.valToPos(x, "x", true), plot.valToPos(y, "y", true)];
        const mark = new Path2D(shape(line.index, ...at, radius));
        ctx.stroke(mark);
        if (!ring) ctx.fill(mark);
      }
    });
  }

  /** Draws with `paint`, and nothing beyond `pixels` outside the axes. */
  within({ ctx, bbox }, pixels, paint) {
    const room = pixels * uPlot.pxRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left - room, bbox.top - room, bbox.width + 2 * room, bbox.height + 2 * room);
    ctx.clip();
    ctx.setLineDash([]);
    paint(ctx);
    ctx.restore();
  }

  /** Zooms to what was selected by dragging. */
  select(plot) {
    const { left, top, width, height } = plot.select;
    if (width < 3 && height < 3) return;
    const along = (scale, from, to) => [plot.posToVal(from, scale), plot.posToVal(to, scale)];
    const { x, y } = plot.cursor.drag._x || plot.cursor.drag._y ? plot.cursor.drag : { x: true, y: true };
    const whole = { x: width === plot.over.clientWidth, y: height === plot.over.clientHeight };
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const range = {
      x: x && !whole.x && width > 0 ? along("x", left, left + width) : this.view.x,
      y: y && !whole.y && height > 0 ? along("y", top + height, top) : this.view.y,
    };
    this.show(range.x, range.y);
    this.linked.zoom(range.x);
  }

  /** Tells the values nearest to where is pointed. */
  point(plot) {
    if (plot.cursor.left < 0 || this.places.length === 0) {
      this.tip.hide();
      return;
    }
    const at = plot.posToVal(plot.cursor.left, "x");
    const nearest = this.places.reduce((a, b) => (Math.abs(b - at) < Math.abs(a - at) ? b : a));
    this.tip.mark(plot, nearest);
    if (plot.over.matches(":hover")) this.tip.show(plot, nearest);
  }

  press(event) {
    const { places, view, tip } = this;
    const seen = places.filter((place) => place >= view.x[0] && place <= view.x[1]);
    const middle = seen.includes(tip.place) ? tip.place : seen[0];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const factor = { "+": 0.5, "-": 2 }[event.key];
    if (step && seen.length > 0) {
      const next = tip.place === null ? 0 : seen.indexOf(middle) + step;
      tip.show(this.drawn, seen[Math.min(Math.max(next, 0), seen.length - 1)]);
      tip.mark(this.drawn, tip.place);
      say(tip.words());
    } else if (factor && middle !== undefined) {
      const limit = (value) => Math.min(Math.max(value, this.whole.x[0]), this.whole.x[1]);
      const x = view.x.map((end) => limit(middle + (end - middle) * factor));
      this.show(x, view.y);
      this.linked.zoom(x);
    } else if (event.key === "Escape") {
      this.showAll();
    } else {
      return;
    }
    event.preventDefault();
  }
}

/** Where a logarithmic axis from `min` to `max` is labelled: as few as tell the scale. */
function logSplits(_, __, min, max) {
  const decades = Math.log10(max / min);
  const steps = decades > 2.5 ? [1] : decades > 0.9 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const splits = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power++) {
    splits.push(...steps.map((step) => Number((step * 10 ** power).toPrecision(2))));
  }
  return splits.filter((split) => split >= min * 0.999 && split <= max * 1.001);
}
