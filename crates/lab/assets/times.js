"use strict";
// Charts of one run over time: one for each quantity, with a line for each node.

// Titles of the quantities of a timeline. Any other quantity is shown by its own name.
const TITLES = {
  offered_cps: "offered, calls/s",
  admitted_cps: "admitted, calls/s",
  rejected_cps: "rejected, calls/s",
  repeated_cps: "INVITEs repeated, 1/s",
  waiting: "messages waiting",
  occupancy: "occupancy of the processor",
  fraction: "share admitted by the law",
  release_cps: "released from the paced queue, calls/s",
  socket_drops_per_s: "lost at receive buffers, 1/s",
  filtered_per_s: "dropped on purpose, 1/s",
  set_up_cps: "set up, calls/s",
  in_time_cps: "goodput, calls/s",
  open: "calls open",
};

/** Shows in `section` those runs of `experiment` that have a timeline. */
function showTimes(experiment, section) {
  const runs = experiment.sources.flatMap((source) =>
    source.runs.map((run) => ({ ...run, source: source.label })));
  if (runs.length === 0) return [];
  section.hidden = false;
  let linked = new Linked();
  // Each choice restricts the runs from which the following choices select.
  const choices = [
    ["results of", (run) => run.source],
    ["variant", (run) => run.variant],
    ...Object.keys(runs[0].swept).map((name) => [name, (run) => run.swept[name]]),
    ["run", (run) => run.repetition],
  ];
  // The run with the highest load is shown first.
  const load = (run) => run.swept.load ?? 0;
  const first = runs.reduce((a, b) => (load(b) > load(a) ? b : a));
  const chosen = choices.map(([, of]) => of(first));
  const draw = () => {
    let left = runs;
    const selectors = choices.map(([title, of], place) => {
      const options = distinct(left.map(of));
      if (!options.includes(chosen[place])) chosen[place] = options[0];
      left = left.filter((run) => of(run) === chosen[place]);
      return selector(title, options, options.indexOf(chosen[place]), (at) => {
        chosen[place] = options[at];
        draw();
      });
    });
    linked = new Linked();
    const seed = element("span", { class: "hint" }, `seed ${left[0].seed}`);
    section.querySelector(".controls").replaceChildren(...selectors.filter(Boolean), seed);
    section.querySelector(".charts").replaceChildren(...timeCharts(left[0], linked));
  };
  draw();
  if (experiment.left_out > 0) {
    const what = `${experiment.left_out} runs more are in their folders only.`;
    section.append(element("p", { class: "hint" }, what));
  }
  return [() => linked];
}

// Slots of the palette except red. The first two are easy to distinguish. Further nodes are grey.
const NODE_SLOTS = [1, 4, 2, 3, 5, 6, 7];

function timeCharts(run, linked) {
  const nodes = distinct(run.series.map((series) => series.node));
  const slotOf = (node) => NODE_SLOTS[nodes.indexOf(node)];
  const last = Math.max(...run.times.map((times) => times.at(-1)));
  const quantities = distinct(run.series.map((series) => series.quantity));
  const isNothing = (quantity) => run.series.every((series) =>
    series.quantity !== quantity || series.values.every((value) => value === 0));
  const title = (quantity) => TITLES[quantity] ?? quantity;
  const figures = quantities.filter((quantity) => !isNothing(quantity)).map((quantity) => {
    const of = run.series.filter((series) => series.quantity === quantity);
    const lines = of.map((series) => ({
      name: series.node,
      slot: slotOf(series.node),
      dash: 0,
      marks: false,
      points: series.values.map((y, at) => ({ x: run.times[series.times][at], y, min: y, max: y })),
    }));
    const highest = Math.max(...of.flatMap((series) => series.values), 0);
    const lowest = Math.min(...of.flatMap((series) => series.values), 0);
    const spec = {
      title: title(quantity),
      describe: `${title(quantity)} over time; ${lines.length} lines.`,
      height: 190,
      x: { label: "time (s)", format: number, tell: (x) => `${number(x)} s`, min: 0, max: last || 1 },
      y: { label: "", format: number, min: lowest * 1.08, max: highest * 1.08 || 1 },
      lines,
      shown: () => true,
    };
    return new Chart(spec, linked).figure;
  });
  const names = nodes.map((node) => element("span", {}, key({ slot: slotOf(node) }), node));
  const keys = element("p", { class: "controls" }, ...names);
  const nothing = quantities.filter(isNothing).map(title).join("; ");
  const hint = element("p", { class: "hint" }, nothing && `0 throughout: ${nothing}`);
  return [keys, element("div", { class: "panels small" }, ...figures), hint];
}
