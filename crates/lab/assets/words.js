"use strict";
// Functions that format values for people, and that create HTML elements.

/** Formats `value` with three significant digits, or as a whole number from 100 on. */
function number(value) {
  if (Math.abs(value) < 0.1) return String(Number(value.toPrecision(3)));
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3;
  return String(Number(value.toFixed(digits)));
}

function percent(part) {
  return `${number(part * 100)} %`;
}

function milliseconds(ms) {
  if (ms >= 1000) return `${number(ms / 1000)} s`;
  return ms >= 1 ? `${number(ms)} ms` : `${number(ms * 1000)} µs`;
}

/** Formats median, minimum and maximum of several runs, such as `0.85 (0.84 – 0.87)`. */
function spread(point, format) {
  const median = format(point.y);
  return point.min === point.max ? median : `${median} (${format(point.min)} – ${format(point.max)})`;
}

/** Returns the different items of `list`, in the order of their first occurrence. */
function distinct(list) {
  return [...new Set(list)];
}

/** Creates an HTML element. `children` are texts or elements. Texts are not parsed as HTML. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Creates a button that calls `act` when it is clicked. */
function button(text, act, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, ...[text].flat());
  made.addEventListener("click", act);
  return made;
}

/** Creates a list of `options`. `act` gets the chosen index. `null` for fewer than two. */
function selector(title, options, chosen, act) {
  if (options.length < 2) return null;
  const list = element("select", {}, ...options.map((text) => element("option", {}, String(text))));
  list.selectedIndex = chosen;
  list.addEventListener("change", () => act(list.selectedIndex));
  return element("label", {}, title, list);
}

/** Creates a table from the texts of its `head` and `body`. */
function plainTable(head, body) {
  const row = (tag, cells) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
  return element(
    "table",
    {},
    element("thead", {}, row("th", head)),
    element("tbody", {}, ...body.map((cells) => row("td", cells))),
  );
}

/** Makes a screen reader read `text` aloud. */
function say(text) {
  document.querySelector(".spoken").textContent = text;
}

/**
 * Returns vertical positions for labels: near the `wanted` positions, at least `gap` apart, and
 * from `low` to `high`. Labels are first moved down from the top, and then up from the bottom.
 */
function spreadOut(wanted, gap, low, high) {
  const order = wanted.map((_, at) => at).sort((a, b) => wanted[a] - wanted[b]);
  const places = [...wanted];
  order.forEach((at, rank) => {
    places[at] = Math.max(wanted[at], rank > 0 ? places[order[rank - 1]] + gap : low);
  });
  order.reverse().forEach((at, rank) => {
    places[at] = Math.min(places[at], rank > 0 ? places[order[rank - 1]] - gap : high);
  });
  return places;
}
