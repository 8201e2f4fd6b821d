"use strict";
// Shows the values of a chart: beside the pointer, for screen readers, and as a table.

/** The values of all lines of a chart at one x value. */
class Tip {
  constructor(chart) {
    this.chart = chart;
    this.place = null;
    this.element = element("div", { class: "tip", hidden: "" });
    this.line = element("div", { class: "place", hidden: "" });
  }

  /** Marks the x value `place` by a vertical line. */
  mark(plot, place) {
    const at = plot.valToPos(place, "x");
    this.line.style.left = `${at}px`;
    this.line.hidden = at < 0 || at > plot.over.clientWidth;
  }

  /** Shows the values of all lines at the x value `place`. */
  show(plot, place) {
    const { spec } = this.chart;
    this.place = place;
    const rows = this.found().map(({ line, point }) => element(
      "tr",
      {},
      element("td", {}, key(line), line.name),
      element("td", { class: "number" }, spread(point, spec.y.format)),
    ));
    const bound = spec.reference && heightAt(spec.reference.corners, place);
    if (bound !== undefined && bound !== null) {
      const name = element("td", {}, key({ dash: 1 }), spec.reference.name);
      rows.push(element("tr", {}, name, element("td", { class: "number" }, spec.y.format(bound))));
    }
    const body = element("tbody", {}, ...rows);
    this.element.replaceChildren(element("b", {}, spec.x.tell(place)), element("table", {}, body));
    this.element.hidden = false;
    const [over, at] = [plot.over, plot.valToPos(place, "x")];
    const right = at < over.clientWidth / 2;
    const left = over.offsetLeft + (right ? at + 14 : at - 14 - this.element.offsetWidth);
    this.element.style.left = `${Math.max(left, 0)}px`;
    this.element.style.top = `${over.offsetTop + 6}px`;
  }

  hide() {
    this.place = null;
    this.element.hidden = true;
    this.line.hidden = true;
  }

  /** Returns the shown values as a sentence, for screen readers. */
  words() {
    const { spec } = this.chart;
    const values = this.found().map(({ line, point }) => `${line.name} ${spec.y.format(point.y)}`);
    return `${spec.x.tell(this.place)}: ${values.join(", ")}`;
  }

  /** Returns the points of all lines at the current x value, the highest first. */
  found() {
    const at = (line) => ({ line, point: line.points.find((point) => point.x === this.place) });
    const found = this.chart.lines.map(at).filter(({ point }) => point);
    return found.sort((a, b) => b.point.y - a.point.y);
  }
}

/** Returns the y value at `x` of the line through `corners`, or `null` beyond its end. */
function heightAt(corners, x) {
  const right = corners.findIndex(([at]) => at >= x);
  if (right < 0) return null;
  const [[x0, y0], [x1, y1]] = [corners[Math.max(right - 1, 0)], corners[right]];
  return x1 === x0 ? y1 : y0 + ((y1 - y0) * (x - x0)) / (x1 - x0);
}

/** Returns an element with the chart as a table, which is made when it is first opened. */
function valuesOf(spec) {
  const details = element("details", {}, element("summary", {}, "as a table"));
  details.addEventListener("toggle", () => {
    if (details.querySelector("table")) return;
    const xs = distinct(spec.lines.flatMap((line) => line.points.map((point) => point.x)));
    xs.sort((a, b) => a - b);
    const body = xs.map((x) => [
      spec.x.format(x),
      ...spec.lines.map((line) => {
        const point = line.points.find((one) => one.x === x);
        return point ? spread(point, spec.y.format) : "–";
      }),
    ]);
    const table = plainTable([spec.x.label, ...spec.lines.map((line) => line.name)], body);
    details.append(element("div", { class: "scroll" }, table));
  });
  return details;
}
