"use strict";
// Values as people read them, and the elements that hold them.

/** `value` with three significant digits. */
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

/** What several runs measured, such as `0.85 (0.84 – 0.87)`. */
function spread(point, format) {
  const median = format(point.y);
  return point.min === point.max ? median : `${median} (${format(point.min)} – ${format(point.max)})`;
}

/** The different items of `list`, in the order of their first appearance. */
function distinct(list) {
  return [...new Set(list)];
}

/** A new element. What `children` hold is text or elements, never markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A button that does `act`. */
function button(text, act, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, ...[text].flat());
  made.addEventListener("click", act);
  return made;
}

/** A list to choose one of `options` from, `act` told its place; `null` if there is no choice. */
function selector(title, options, chosen, act) {
  if (options.length < 2) return null;
  const list = element("select", {}, ...options.map((text) => element("option", {}, String(text))));
  list.selectedIndex = chosen;
  list.addEventListener("change", () => act(list.selectedIndex));
  return element("label", {}, title, list);
}

/** A table with `head` and `body` of texts. */
function plainTable(head, body) {
  const row = (tag, cells) => element("tr", {}, ...cells.map((cell) => element(tag, {}, cell)));
  return element(
    "table",
    {},
    element("thead", {}, row("th", head)),
    element("tbody", {}, ...body.map((cells) => row("td", cells))),
  );
}

/** Has `text` read out by a screen reader. */
function say(text) {
  document.querySelector(".spoken").textContent = text;
}

/**
 * Heights for labels that want to stand at `wanted`, at least `gap` apart and within `low` to
 * `high`: pushed down from the top, then up from the bottom.
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
