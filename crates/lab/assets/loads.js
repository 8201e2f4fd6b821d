"use strict";
// What came of each load: an overview, and a chart for each quantity and panel.

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
    title: "Refused",
    note: "calls refused, as a part of the calls offered",
    label: "refused ÷ offered",
    of: (row) => row.refused,
    format: percent,
    least: 1.02,
  },
];

/** Shows `experiment` in `section`. */
function showLoads(experiment, section) {
  const rows = experiment.sources.flatMap((source, dash) =>
    source.rows.map((row) => ({ ...row, dash, source: source.label })));
  if (rows.length === 0) return [];
  section.hidden = false;
  const state = { swept: { ...rows[0].swept }, quantile: "p99_ms", hidden: new Set() };
  const labels = distinct(rows.map((row) => row.label));
  let linked = new Linked();
  const draw = () => {
    const chosen = rows.filter((row) => same(row.swept, state.swept));
    linked = new Linked();
    const shown = (line) => !state.hidden.has(line.label) && !state.hidden.has(line.source);
    const context = { experiment, state, linked, labels, shown, all: rows };
    section.querySelector(".overview").replaceChildren(...overview(chosen, context));
    const parts = QUANTITIES.flatMap((quantity) => charts(quantity, chosen, context));
    section.querySelector(".charts").replaceChildren(...parts);
  };
  const toggle = (name) => {
    if (!state.hidden.delete(name)) state.hidden.add(name);
    linked.redraw();
  };
  const controls = loadControls(experiment, rows, labels, state, { draw, toggle });
  section.querySelector(".controls").append(...controls);
  draw();
  return [() => linked];
}

/** What chooses the lines, the conditions and the quantile. */
function loadControls(experiment, rows, labels, state, { draw, toggle }) {
  const switches = (name, drawn) => {
    const made = button([key(drawn), name], () => {
      toggle(name);
      made.setAttribute("aria-pressed", String(!state.hidden.has(name)));
    }, { "aria-pressed": "true" });
    return made;
  };
  const lines = labels.map((label, index) => switches(label, { index }));
  const sources = experiment.sources.map((source, dash) => switches(source.label, { dash }));
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
  const shown = [...lines, ...(sources.length > 1 ? sources : []), gap, ...conditions, quantiles];
  return shown.filter(Boolean);
}

/** A heading and a chart for each panel. */
function charts(quantity, rows, context) {
  const { state, linked } = context;
  const panels = distinct(rows.map((row) => row.panel));
  const quantile = quantity.log ? { p50_ms: "p50, ", p99_ms: "p99, " }[state.quantile] : "";
  const figures = panels.map((panel) => {
    const of = rows.filter((row) => row.panel === panel);
    return new Chart(chartOf(quantity, panel, of, context), linked).figure;
  });
  const heading = element("h3", {}, quantity.title, element("small", {}, quantile + quantity.note));
  return [heading, element("div", { class: "panels" }, ...figures)];
}

function chartOf(quantity, panel, rows, context) {
  const { experiment, state, labels, shown, all } = context;
  const several = experiment.sources.length > 1;
  const lines = [];
  for (const row of rows) {
    const value = quantity.of(row, state);
    if (!value || (quantity.log && value.median <= 0)) continue;
    const mine = (line) => line.label === row.label && line.dash === row.dash;
    let line = lines.find(mine);
    if (!line) {
      const name = several ? `${row.label}, ${row.source}` : row.label;
      const index = labels.indexOf(row.label);
      line = { name, label: row.label, source: row.source, index, dash: row.dash, marks: true, points: [] };
      lines.push(line);
    }
    line.points.push({ x: row.load, y: value.median, min: value.min, max: value.max });
  }
  for (const line of lines) line.points.sort((a, b) => a.x - b.x);
  // One range for all panels and conditions, so that they compare.
  const last = Math.max(...all.map((row) => row.load));
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
    shown,
  };
}

/** The bound of the goodput, or the deadline of the delay. */
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

/** The powers of ten around `spreads` and the line of reference. */
function decades(spreads, reference) {
  const values = spreads.flatMap((one) => [one.min, one.max]).filter((value) => value > 0);
  values.push(...(reference ? reference.corners.map(([, y]) => y) : [1]));
  const power = (value, round) => 10 ** round(Math.log10(value));
  const min = power(Math.min(...values), Math.floor);
  return { min, max: Math.max(power(Math.max(...values), Math.ceil), min * 10) };
}

/** Goodput as a part of the bound: a table for each panel, a row for each variant. */
function overview(rows, { experiment, labels }) {
  const several = experiment.sources.length > 1;
  const loads = distinct(rows.map((row) => row.load)).sort((a, b) => a - b);
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
      const mark = key({ index: labels.indexOf(label), dash });
      const head = element("th", { scope: "row" }, mark, several ? name : label);
      return element("tr", {}, head, ...loads.map((load) => cell(mine.find((row) => row.load === load))));
    });
    const heads = loads.map((load) => element("th", { scope: "col", class: "number" }, number(load)));
    const head = element("tr", {}, element("th", { scope: "col" }, "load"), ...heads);
    const made = element("table", {}, element("caption", {}, element("b", {}, panel)),
      element("thead", {}, head), element("tbody", {}, ...body));
    return element("div", { class: "scroll" }, made);
  };
  const heading = element("h3", {}, "Goodput as a part of the bound", element("small", {}, "median of the runs"));
  return [heading, element("div", { class: "panels" }, ...distinct(rows.map((row) => row.panel)).map(table))];
}

/** Whether two sets of swept conditions are alike. */
function same(a, b) {
  return Object.keys(a).every((name) => a[name] === b[name]);
}
