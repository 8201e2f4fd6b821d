"""The simulator predicts goodput and p99 of this machine under overload from costs measured here

Nothing is emulated in the real runs: the kernel gives Tidegate 1 ms of every 5 (a fifth of a core). `tidegate lab
calibrate --quota 0.2` measures the costs of messages under this condition. scenarios/predict.toml is run in simulated
time with these costs and this quota. The same loads, as multiples of the predicted capacity, are offered to the real
Tidegate. Each round measures the costs again, because the speed of a shared machine changes within minutes. The
output shows the error of the predicted goodput, in parts of the capacity, and the ratio of the predicted
p99 of the set-up delay to the real one. The aim, with the laws and without control, is an error of at most .05 of the
capacity for the goodput, and a factor of at most 1.3 for the p99, at each load. The server without control must also
collapse where the laws do not.
"""

from typing import Any

from tidegate_bench import program, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.load import Load, judge_generator, trial
from tidegate_bench.overload import Variant
from tidegate_bench.prediction import COLUMNS, Round, compare, judge
from tidegate_bench.quota import PERIOD_MS, SHARE, tick_ms
from tidegate_bench.record import Record

WARM_UP_S = 2.5
MEASURED_S = 2.5
# The variants of the scenario, by their names there.
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("none", "service", "fifo", sticky=False),
        Variant("occupancy", "arrival", "class"),
        Variant("pi", "arrival", "class"),
        Variant("tide", "arrival", "class", disposal="auto"),
    )
}
# The load, as a multiple of the capacity, at which a server without control must have less goodput than with it.
COLLAPSED = 2.0


def predicted(record: Record, round_: int) -> dict[str, Any]:
    """Measures the costs, and returns the results of the simulation with these costs."""
    costs, out = record.directory / f"costs-{round_}.toml", record.directory / f"sim-{round_}"
    quota = ("--quota", SHARE, "--period-ms", PERIOD_MS, "--tick-ms", tick_ms())
    calibrate = ("calibrate", "--mode", "stateless", "--rounds", 3, "--out", costs, *quota)
    program.lab(*calibrate, "--json", costs.with_suffix(".json"), profile="release")
    print(costs.read_text(), flush=True)
    return program.scenario("scenarios/predict.toml", out, "--world", "sim", "--costs", costs, profile="release")


class Show(Demonstration):
    def round(self, round_: int) -> Round:
        """Predicts the results of all variants, and measures them."""
        prediction = predicted(self, round_)
        capacity = prediction["capacity_cps"]
        print(f"predicted capacity with a fifth of a core: {capacity:.0f} calls/s", flush=True)
        runs = []
        for row in prediction["rows"]:
            load = Load(row["load"] * capacity, WARM_UP_S, MEASURED_S, seed=round_)
            runs.append(trial(load, VARIANTS[row["variant"]], "release", limited=True)[0])
        print(f"round {round_} of {len(self.rounds)} done", flush=True)
        return Round(prediction, runs)

    def run(self) -> Results:
        rounds = [self.round(round_) for round_ in self.rounds]
        rows = self.rows("results", compare(rounds))
        table.show(rows, COLUMNS, line=lambda row: f"{row['load']:4.1f}", block=lambda row: row["variant"])
        for law in VARIANTS:
            judge(self, [row for row in rows if row["variant"] == law], f"{law}: ")
        for world in ("sim_goodput", "real_goodput_median"):
            at = {row["variant"]: row[world] for row in rows if row["load"] == COLLAPSED}
            none, *laws = (at[law] for law in VARIANTS)
            self.expect(
                all(none < kept for kept in laws),
                f"{world}: at {COLLAPSED} times the capacity {none:.3f} without control, "
                f"{' and '.join(f'{kept:.3f}' for kept in laws)} with it",
            )
        judge_generator(self, [run for each in rounds for run in each.runs])
        return {"capacity_cps": [each.capacity_cps for each in rounds], "rows": rows}
