"use strict";
// The colour and the marks of a line show its variant. Its dashes show the source of its results,
// such as simulated time.

const SHAPES = [
  // Circle, square, triangle, diamond, inverted triangle, cross: at (x, y) with about the radius r.
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (x, y, r) => polygon(x, y, r * 0.9, [[-1, -1], [1, -1], [1, 1], [-1, 1]]),
  (x, y, r) => polygon(x, y, r * 1.15, [[0, -1.1], [1, 0.8], [-1, 0.8]]),
  (x, y, r) => polygon(x, y, r * 1.3, [[0, -1], [1, 0], [0, 1], [-1, 0]]),
  (x, y, r) => polygon(x, y, r * 1.15, [[0, 1.1], [1, -0.8], [-1, -0.8]]),
  (x, y, r) => polygon(x, y, r * 0.45, [
    [-1, -3], [1, -3], [1, -1], [3, -1], [3, 1], [1, 1], [1, 3], [-1, 3], [-1, 1], [-3, 1], [-3, -1], [-1, -1],
  ]),
];

const DASHES = [[], [7, 5], [2, 4], [10, 4, 2, 4]];

function polygon(x, y, r, corners) {
  return `M${corners.map(([dx, dy]) => `${x + dx * r} ${y + dy * r}`).join("L")}z`;
}

/** Returns the current value of a colour of the page. */
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Returns the colour of a slot of the palette, or grey without a slot. */
function seriesColour(slot) {
  return colour(slot === undefined ? "muted" : `series-${slot}`);
}

function shape(slot, x, y, radius) {
  return SHAPES[slot % SHAPES.length](x, y, radius);
}

function dashes(index) {
  return DASHES[index % DASHES.length];
}

/** Creates an SVG element. */
function drawing(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Creates a short line with its mark, for a legend. Without `slot`: a grey line without a mark. */
function key({ slot, dash = 0 }) {
  const stroke = slot === undefined ? "var(--muted)" : `var(--series-${slot})`;
  const made = drawing("svg", { class: "key", viewBox: "0 0 30 12", "aria-hidden": "true" });
  const part = (attributes) => made.append(drawing("path", attributes));
  part({ d: "M0 6H30", fill: "none", stroke, "stroke-width": 2.2, "stroke-dasharray": dashes(dash).map((length) => length * 0.8).join(" ") });
  if (slot !== undefined) {
    const ring = dash > 0;
    part({ d: shape(slot, 15, 6, 4), fill: ring ? "none" : stroke, stroke, "stroke-width": ring ? 1.6 : 0 });
  }
  return made;
}
