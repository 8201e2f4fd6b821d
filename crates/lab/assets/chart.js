"use strict";
// A line chart, drawn by uPlot. Users drag to zoom, double-click to reset the zoom, and point or
// press arrow keys to read values.

/** Charts that are zoomed together along the horizontal axis. */
class Linked {
  /** Calls `toggle` with the label of a line when a user clicks the line. */
  constructor(toggle = () => {}) {
    this.toggle = toggle;
    this.charts = [];
    this.key = `linked-${Linked.count++}`;
  }

  zoom(x) {
    for (const chart of this.charts) chart.show(x, chart.view.y);
  }

  /** Draws the lines called `label` on top of all others, or no line on top if it is `null`. */
  focus(label) {
    for (const chart of this.charts) chart.showFocus(label);
  }

  redraw() {
    for (const chart of this.charts) chart.draw();
  }
}
Linked.count = 0;

/**
 * A chart. `spec` has a `title`; a sentence that describes the chart (`describe`); the axes `x` and
 * `y`, each with `label`, `format`, `min` and `max`, and `log` if logarithmic; `lines`, each with
 * `name`, an optional `label` at its end, its `slot` in the palette (grey without), `dash`, `marks`
 * and `points` (`x`, `y`, `min`, `max`); an optional calculated line `reference` with `name` and
 * `corners`; and a function `shown`, which returns whether a line is visible.
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
    this.focus = drawing("svg", { class: "focus", "aria-hidden": "true" });
    const caption = element("figcaption", {}, element("b", {}, spec.title), this.reset);
    this.figure = element("figure", { class: "chart" }, caption, this.plot, valuesOf(spec));
    this.plot.append(this.tip.element);
    this.plot.addEventListener("keydown", (event) => this.press(event));
    this.plot.addEventListener("blur", () => this.tip.hide());
    new ResizeObserver(() => this.fit()).observe(this.plot);
    linked.charts.push(this);
  }

  /** Draws the whole chart again, with the current colours of the page. */
  draw() {
    this.drawn?.destroy();
    const shown = this.spec.lines.filter((line) => this.spec.shown(line));
    // Coloured lines are drawn last, on top of the grey ones.
    const isGrey = (line) => line.slot === undefined;
    this.lines = [...shown.filter(isGrey), ...shown.filter((line) => !isGrey(line))];
    const labelled = this.lines.filter((line) => line.marks && line.dash === 0 && !isGrey(line));
    this.labels = [...labelled, ...[this.spec.reference ?? []].flat()].map(({ label, name }) => label ?? name);
    this.drawn = new uPlot(this.options(), this.columns(), this.plot);
    this.drawn.over.addEventListener("dblclick", () => this.showAll());
    this.drawn.over.append(this.focus, this.tip.line);
    this.drawn.over.addEventListener("pointerdown", () => (this.dragged = false));
    this.drawn.over.addEventListener("pointerleave", () => this.linked.focus(null));
    this.drawn.over.addEventListener("click", () => {
      const label = this.pointed;
      if (label && !this.dragged) this.linked.toggle(label);
    });
  }

  /** Zooms to the range `x` of the horizontal axis and the range `y` of the vertical axis. */
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

  /** Adapts the chart to the width of its element. */
  fit() {
    if (!this.drawn) this.draw();
    else if (this.plot.clientWidth !== this.drawn.width) this.drawn.setSize(this.size());
  }

  size() {
    return { width: Math.max(this.plot.clientWidth, 200), height: this.spec.height ?? 270 };
  }

  /** Returns all x values, and for each line its y values there (`null` where it has none). */
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
      stroke: seriesColour(line.slot),
      width: line.slot === undefined ? 1.2 : line.marks ? 2.2 : 1.5,
      dash: dashes(line.dash),
      spanGaps: true,
      points: { show: false },
    });
    const calculated = { stroke: faint, width: 1.5, dash: [6, 5], spanGaps: true, points: { show: false } };
    return {
      ...this.size(),
      legend: { show: false },
      padding: [10, this.labels.length > 0 ? textWidth(this.labels) + LED : 14, 0, 0],
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
        { ...axis(y), size: (_, values) => textWidth(values ?? []) + 18, ...(y.log && { splits: logSplits, filter: (_, splits) => splits }) },
      ],
      series: [{}, calculated, ...this.lines.map(drawn)],
      hooks: {
        drawAxes: [(plot) => this.drawSpreads(plot)],
        drawSeries: [(plot, index) => this.drawMarks(plot, this.lines[index - 2])],
        draw: [(plot) => this.drawLabels(plot)],
        setCursor: [(plot) => this.point(plot)],
        setSelect: [(plot) => this.select(plot)],
      },
    };
  }

  /** Draws minimum to maximum: as a band behind a solid line, as whiskers on a dashed line. */
  drawSpreads(plot) {
    const place = (x, y) => [plot.valToPos(x, "x", true), plot.valToPos(y, "y", true)];
    this.within(plot, 0, (ctx) => {
      for (const { points, dash, slot } of this.lines) {
        if (slot === undefined) continue;
        ctx.beginPath();
        if (dash === 0) {
          for (const { x, max } of points) ctx.lineTo(...place(x, max));
          for (const { x, min } of [...points].reverse()) ctx.lineTo(...place(x, min));
          ctx.closePath();
          ctx.globalAlpha = 0.18;
          ctx.fillStyle = seriesColour(slot);
          ctx.fill();
        } else {
          for (const { x, min, max } of points) {
            ctx.moveTo(...place(x, min));
            ctx.lineTo(...place(x, max));
          }
          ctx.globalAlpha = 0.8;
          ctx.lineWidth = 1.5 * uPlot.pxRatio;
          ctx.strokeStyle = seriesColour(slot);
          ctx.stroke();
        }
      }
    });
  }

  /** Draws a mark at each point of `line`: filled on a solid line, hollow on a dashed line. */
  drawMarks(plot, line) {
    if (!line?.marks || line.slot === undefined) return;
    const ring = line.dash > 0;
    const radius = (ring ? 6 : 4) * uPlot.pxRatio;
    // Marks at the edge of the plot extend beyond it by up to 8 pixels.
    this.within(plot, 8, (ctx) => {
      ctx.lineWidth = (ring ? 1.8 : 2.4) * uPlot.pxRatio;
      ctx.strokeStyle = ring ? seriesColour(line.slot) : colour("paper");
      ctx.fillStyle = seriesColour(line.slot);
      for (const { x, y } of line.points) {
        const at = [plot.valToPos(x, "x", true), plot.valToPos(y, "y", true)];
        const mark = new Path2D(shape(line.slot, ...at, radius));
        ctx.stroke(mark);
        if (!ring) ctx.fill(mark);
      }
    });
  }

  /** Returns the labels of `lines` and of the reference, each with the end of its line. */
  ends(plot, lines) {
    const [from, to] = this.view.x;
    const end = (name, color, points) => {
      const seen = points.filter(([x]) => x >= from && x <= to);
      if (seen.length === 0) return [];
      const [x, y] = seen.at(-1);
      const clip = (value) => Math.min(Math.max(value, 0), plot.over.clientHeight);
      return [{ name, color, x: plot.valToPos(x, "x"), y: clip(plot.valToPos(y, "y")) }];
    };
    const { reference } = this.spec;
    const labelled = lines.filter((line) => this.labels.includes(line.label) && line.dash === 0);
    return [
      ...labelled.flatMap(({ label, slot, points }) =>
        end(label, seriesColour(slot), points.map(({ x, y }) => [x, y]))),
      ...(reference ? end(reference.name, colour("faint"), sampled(reference.corners, this.view.x)) : []),
    ];
  }

  /** Writes the label of each line at the end of the line. */
  drawLabels(plot) {
    const ends = this.ends(plot, this.lines);
    const places = spreadOut(ends.map(({ y }) => y), 14, 0, plot.over.clientHeight);
    const { ctx, bbox } = plot;
    const ratio = uPlot.pxRatio;
    ctx.save();
    ctx.font = `600 ${12 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.setLineDash([]);
    ends.forEach(({ name, color, x, y }, at) => {
      const right = bbox.left + bbox.width;
      const height = bbox.top + places[at] * ratio;
      ctx.strokeStyle = color;
      ctx.lineWidth = ratio;
      ctx.globalAlpha = 0.6;
      ctx.beginPath();
      ctx.moveTo(bbox.left + (x + 5) * ratio, bbox.top + y * ratio);
      ctx.lineTo(right + 10 * ratio, height);
      ctx.lineTo(right + 13 * ratio, height);
      ctx.stroke();
      ctx.globalAlpha = 1;
      ctx.fillStyle = color;
      ctx.fillText(name, right + 16 * ratio, height);
    });
    ctx.restore();
  }

  /** Draws the lines called `label` on top of all others, or no line on top if it is `null`. */
  showFocus(label) {
    this.focus.replaceChildren();
    const { drawn: plot } = this;
    if (!plot || !label) return;
    for (const line of this.lines.filter((one) => one.label === label)) {
      const places = line.points.map(({ x, y }) => [plot.valToPos(x, "x"), plot.valToPos(y, "y")]);
      if (places.length === 0) continue;
      const stroke = line.slot === undefined ? "var(--ink)" : seriesColour(line.slot);
      const path = drawing("path", { d: `M${places.map((place) => place.join(" ")).join("L")}`, stroke });
      if (line.dash > 0) path.setAttribute("stroke-dasharray", dashes(line.dash).join(" "));
      this.focus.append(path);
      if (line.slot !== undefined) continue;
      const [x, y] = places.at(-1);
      const attributes = { x: x + 16, y: Math.min(Math.max(y, 6), plot.over.clientHeight) + 4, fill: stroke };
      this.focus.append(drawing("text", attributes, label));
    }
  }

  /** Returns the label of the line nearest to the pointer, or `null` if no line is near. */
  nearest(plot) {
    const { left, top } = plot.cursor;
    const distance = (line) => {
      const places = line.points.map(({ x, y }) => [plot.valToPos(x, "x"), plot.valToPos(y, "y")]);
      const height = heightAt(places, left);
      return height === null || left < places[0][0] ? Infinity : Math.abs(height - top);
    };
    const near = this.lines.filter((line) => line.marks && line.points.length > 0)
      .map((line) => [distance(line), line.label]).sort(([a], [b]) => a - b);
    return near.length > 0 && near[0][0] < 14 ? near[0][1] : null;
  }

  /** Calls `paint`, and clips its drawing at `pixels` outside the axes. */
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

  /** Zooms to the area that the user has selected by dragging. */
  select(plot) {
    const { left, top, width, height } = plot.select;
    if (width < 3 && height < 3) return;
    this.dragged = true;
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

  /** Shows the values nearest to the pointer. */
  point(plot) {
    if (plot.cursor.left < 0 || this.places.length === 0) {
      this.tip.hide();
      return;
    }
    const at = plot.posToVal(plot.cursor.left, "x");
    const nearest = this.places.reduce((a, b) => (Math.abs(b - at) < Math.abs(a - at) ? b : a));
    this.tip.mark(plot, nearest);
    if (!plot.over.matches(":hover")) return;
    this.tip.show(plot, nearest);
    const pointed = this.nearest(plot);
    if (pointed !== this.pointed) this.linked.focus(pointed);
    this.pointed = pointed;
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

/** Width of the gaps before and after the labels beside a plot, together, in pixels. */
const LED = 20;

/** Returns the width of the longest of `texts` in pixels, in the font of labels. */
function textWidth(texts) {
  const { canvas } = textWidth;
  const ctx = canvas.getContext("2d");
  ctx.font = "600 12px system-ui, sans-serif";
  return Math.ceil(Math.max(0, ...texts.map((text) => ctx.measureText(text ?? "").width)));
}
textWidth.canvas = document.createElement("canvas");

/** Returns the corners of a line up to the end of the range of x, and its point at this end. */
function sampled(corners, [, to]) {
  const end = Math.min(to, corners.at(-1)[0]);
  return [...corners.filter(([x]) => x < end), [end, heightAt(corners, end)]];
}

/** Returns the labelled values of a logarithmic axis: more in a decade if there are few decades. */
function logSplits(_, __, min, max) {
  const decades = Math.log10(max / min);
  const steps = decades > 2.5 ? [1] : decades > 0.9 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
  const splits = [];
  for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power++) {
    splits.push(...steps.map((step) => Number((step * 10 ** power).toPrecision(2))));
  }
  return splits.filter((split) => split >= min * 0.999 && split <= max * 1.001);
}
