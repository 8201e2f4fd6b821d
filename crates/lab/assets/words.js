"use strict";
// Values as people read them, and the elements that hold them.

/** `value` with three digits that tell something. */
function number(value) {
  if (value === 0) return "0";
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
