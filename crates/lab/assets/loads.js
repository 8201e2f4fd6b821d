"use strict";
// The results by load: a table of goodput, and a chart for each quantity and panel.

const QUANTITIES = [
  {
    title: "Goodput",
    note: "calls set up in time, as a part of the capacity",
    label: "goodput ÷ capacity",
    of: (row) => row.goodput,
    format: number,
    bound: true,
    least: 1.05,
  },
  {
    title: "Set-up delay",
    note: "of calls that were set up",
    label: "set-up delay",
    of: (row, state) => row[state.quantile],
    format: milliseconds,
    log: true,
  },
  {
    title: "Retransmissions",
    note: "INVITEs sent again, for each sent first",
    label: "resent ÷ sent first",
    of: (row) => row.retransmission_ratio,
    format: number,
    least: 0.1,
  },
  {
    title: "Rejected",
    note: "calls rejected, as a part of the calls offered",
    label: "rejected ÷ offered",
    of: (row) => row.rejected,
    format: percent,
    least: 1.02,
  },
];

// Slots of the palette, in the order of use. Each highlighted curve has its own slot. 0 is red.
const SLOTS = [1, 2, 3, 4, 5, 6, 7, 0];

/** The highlighted curves: the slot in the palette of each label. */
class Highlights {
  constructor(slots) {
    this.slots = new Map(slots);
    this.evicted = new Map();
  }

  /** Makes a grey curve coloured, in place of another one if no slot is free, or grey again. */
  toggle(label) {
    if (this.slots.has(label)) {
      const slot = this.slots.get(label);
      this.slots.delete(label);
      const before = this.evicted.get(label);
      if (before !== undefined) this.slots.set(before, slot);
      this.evicted.delete(label);
      return;
    }
    const taken = [...this.slots.values()];
    let slot = SLOTS.find((one) => !taken.includes(one));
    if (slot === undefined) {
      const [last, of] = [...this.slots].filter(([, one]) => one !== 0).at(-1);
      this.slots.delete(last);
      this.evicted.set(label, last);
      slot = of;
    }
    this.slots.set(label, slot);
  }
}

/** Shows the results of `experiment` by load in `section`. */
function showLoads(experiment, section) {
  const rows = experiment.sources.flatMap((source, dash) =>
    source.rows.map((row) => ({ ...row, dash, source: source.label })));
  if (rows.length === 0) return [];
  section.hidden = false;
  const state = {
    swept: { ...rows[0].swept },
    quantile: "p99_ms",
    hidden: new Set(),
    highlights: new Highlights(experiment.slots),
    grey: true,
  };
  const labels = distinct(rows.map((row) => row.label));
  let linked = new Linked();
  let mark = () => {};
  const toggle = (name) => {
    if (labels.includes(name)) state.highlights.toggle(name);
    else if (!state.hidden.delete(name)) state.hidden.add(name);
    mark();
    redraw();
  };
  const redraw = () => {
    const chosen = rows.filter((row) => same(row.swept, state.swept));
    section.querySelector(".overview").replaceChildren(...overview(chosen, { experiment, state }));
    linked.redraw();
  };
  const draw = () => {
    const chosen = rows.filter((row) => same(row.swept, state.swept));
    linked = new Linked(toggle);
    redraw();
    const context = { experiment, state, linked, all: rows };
    const parts = QUANTITIES.flatMap((quantity) => charts(quantity, chosen, context));
    section.querySelector(".charts").replaceChildren(...parts);
  };
  const focus = (name) => linked.focus(name);
  const [controls, marking] = loadControls(experiment, rows, labels, state, { draw, redraw, toggle, focus });
  mark = marking;
  section.querySelector(".controls").append(...controls);
  draw();
  return [() => linked];
}

/** Returns the buttons for curves, conditions and quantile, and a function that updates them. */
function loadControls(experiment, rows, labels, state, { draw, redraw, toggle, focus }) {
  const curves = labels.map((label) => {
    const made = button("", () => toggle(label), { class: "curve" });
    made.addEventListener("pointerenter", () => focus(label));
    made.addEventListener("pointerleave", () => focus(null));
    return made;
  });
  const mark = () => labels.forEach((label, at) => {
    const slot = state.highlights.slots.get(label);
    curves[at].replaceChildren(key({ slot }), label);
    curves[at].setAttribute("aria-pressed", String(slot !== undefined));
  });
  mark();
  const grey = button("grey curves", () => {
    state.grey = !state.grey;
    grey.setAttribute("aria-pressed", String(state.grey));
    redraw();
  }, { "aria-pressed": "true" });
  const sources = experiment.sources.map((source, dash) => {
    const made = button([key({ dash }), source.label], () => {
      toggle(source.label);
      made.setAttribute("aria-pressed", String(!state.hidden.has(source.label)));
    }, { "aria-pressed": "true" });
    return made;
  });
  const conditions = Object.keys(state.swept).map((name) => {
    const values = distinct(rows.map((row) => row.swept[name])).sort((a, b) => a - b);
    return selector(name, values, values.indexOf(state.swept[name]), (at) => {
      state.swept[name] = values[at];
      draw();
    });
  });
  const quantile = (name, text) => button(text, (event) => {
    state.quantile = name;
    for (const other of event.target.parentElement.children) {
      other.setAttribute("aria-pressed", String(other === event.target));
    }
    draw();
  }, { "aria-pressed": String(name === state.quantile) });
  const quantiles = element(
    "span",
    { class: "choice", role: "group", "aria-label": "quantile of the set-up delay" },
    quantile("p50_ms", "p50"),
    quantile("p99_ms", "p99"),
  );
  const gap = element("span", { class: "gap" });
  const shown = [...curves, grey, ...(sources.length > 1 ? sources : []), gap, ...conditions, quantiles];
  return [shown.filter(Boolean), mark];
}

/** Returns a heading, and a chart for each panel. */
function charts(quantity, rows, context) {
  const { state, linked } = context;
  const panels = distinct(rows.map((row) => row.panel));
  const quantile = quantity.log ? { p50_ms: "p50, ", p99_ms: "p99, " }[state.quantile] : "";
  const figures = panels.map((panel) => {
    const of = rows.filter((row) => row.panel === panel);
    return new Chart(chartOf(quantity, panel, of, context), linked).figure;
  });
  const heading = element("h3", {}, quantity.title, element("small", {}, quantile + quantity.note));
  const spreads = rows.map((row) => quantity.of(row, state)).filter(Boolean);
  if (spreads.every((spread) => spread.max === 0)) {
    const none = quantity.log ? "No call was set up." : "0 at every load, in every run.";
    return [heading, element("p", { class: "hint" }, none)];
  }
  return [heading, element("div", { class: "panels" }, ...figures)];
}

function chartOf(quantity, panel, rows, context) {
  const { experiment, state, all } = context;
  const several = experiment.sources.length > 1;
  const lines = [];
  for (const row of rows) {
    const value = quantity.of(row, state);
    if (!value || (quantity.log && value.median <= 0)) continue;
    const mine = (line) => line.label === row.label && line.dash === row.dash;
    let line = lines.find(mine);
    if (!line) {
      const name = several ? `${row.label}, ${row.source}` : row.label;
      line = {
        name,
        label: row.label,
        source: row.source,
        get slot() {
          return state.highlights.slots.get(row.label);
        },
        dash: row.dash,
        marks: true,
        points: [],
      };
      lines.push(line);
    }
    line.points.push({ x: row.mean_load, y: value.median, min: value.min, max: value.max });
  }
  for (const line of lines) line.points.sort((a, b) => a.x - b.x);
  // All panels and conditions have the same range, so that a reader can compare them.
  const last = Math.max(...all.map((row) => row.mean_load)) || 1;
  const reference = referenceOf(quantity, panel, last, context);
  const spreads = all.map((row) => quantity.of(row, state)).filter(Boolean);
  const y = quantity.log
    ? decades(spreads, reference)
    : { min: 0, max: Math.max(quantity.least, ...spreads.map((one) => one.max * 1.05)) };
  return {
    title: panel,
    describe: `${quantity.title} over offered load, ${panel}; ${lines.length} lines.`,
    x: { label: "offered load ÷ capacity", format: number, tell: (x) => `load ${number(x)}`, min: 0, max: last * 1.03 },
    y: { label: quantity.label, format: quantity.format, log: quantity.log, ...y },
    lines,
    reference,
    shown: (line) => !state.hidden.has(line.source) && (state.grey || line.slot !== undefined),
  };
}

/** Returns the reference line: the bound of the goodput, or the deadline of the delay. */
function referenceOf(quantity, panel, last, { experiment, state }) {
  if (quantity.bound) {
    const mine = (bound) => bound.panel === panel && same(bound.swept, state.swept);
    const found = experiment.bounds.find(mine);
    return found && { name: "bound", corners: found.corners };
  }
  const deadline = state.swept.deadline_ms ?? experiment.deadline_ms;
  if (!quantity.log || deadline === null) return undefined;
  return { name: "deadline", corners: [[0, deadline], [last * 1.03, deadline]] };
}

/** Returns the powers of ten below and above all values of `spreads` and the reference line. */
function decades(spreads, reference) {
  const values = spreads.flatMap((one) => [one.min, one.max]).filter((value) => value > 0);
  values.push(...(reference ? reference.corners.map(([, y]) => y) : [1]));
  const power = (value, round) => 10 ** round(Math.log10(value));
  const min = power(Math.min(...values), Math.floor);
  return { min, max: Math.max(power(Math.max(...values), Math.ceil), min * 10) };
}

const BEYOND =
  "Above 100 %: the bound charges each call of the measured seconds with its whole cost. A server completes more " +
  "calls within them if it puts off work, such as a BYE or a rejection, until they are over, or if it had begun calls " +
  "before.";

/** Returns tables of goodput as a part of the bound: one for each panel, a row for each variant. */
function overview(rows, { experiment, state }) {
  const several = experiment.sources.length > 1;
  const loads = distinct(rows.map((row) => row.load)).sort((a, b) => a - b);
  const title = rows.some((row) => row.mean_load !== row.load) ? "nominal load" : "load";
  const line = (row) => `${row.label}, ${row.source}`;
  const cell = (row) => {
    const part = row?.goodput_of_bound?.median;
    if (part === undefined) return element("td", {}, "–");
    const style = `--part: ${Math.min(part, 1).toFixed(3)}`;
    return element("td", { style }, `${Math.round(part * 100)} %`);
  };
  const table = (panel) => {
    const of = rows.filter((row) => row.panel === panel);
    const body = distinct(of.map(line)).map((name) => {
      const mine = of.filter((row) => line(row) === name);
      const [{ label, dash }] = mine;
      const mark = key({ slot: state.highlights.slots.get(label), dash });
      const head = element("th", { scope: "row" }, mark, several ? name : label);
      return element("tr", {}, head, ...loads.map((load) => cell(mine.find((row) => row.load === load))));
    });
    const heads = loads.map((load) => element("th", { scope: "col", class: "number" }, number(load)));
    const head = element("tr", {}, element("th", { scope: "col" }, title), ...heads);
    const made = element("table", {}, element("caption", {}, element("b", {}, panel)),
      element("thead", {}, head), element("tbody", {}, ...body));
    return element("div", { class: "scroll" }, made);
  };
  const heading = element("h3", {}, "Goodput as a part of the bound", element("small", {}, "median of the runs"));
  const tables = element("div", { class: "panels" }, ...distinct(rows.map((row) => row.panel)).map(table));
  const beyond = rows.some((row) => Math.round((row.goodput_of_bound?.median ?? 0) * 100) > 100);
  return [heading, tables, ...(beyond ? [element("p", { class: "hint" }, BEYOND)] : [])];
}

/** Returns whether two sets of swept conditions are equal. */
function same(a, b) {
  return Object.keys(a).every((name) => a[name] === b[name]);
}
