"""The simulator predicts goodput and p99 of this machine under overload from costs measured here

Nothing is emulated in the real runs: the kernel gives Tidegate 1 ms of every 5 (a fifth of a core). `tidegate lab
calibrate --quota 0.2` measures the costs of messages under this condition. scenarios/predict.toml is run in simulated
time with these costs and this quota. The same loads, as multiples of the predicted capacity, are offered to the real
Tidegate. The output shows the error of the predicted goodput, in parts of the capacity, and the ratio of the predicted
p99 of the set-up delay to the real one. The aim, with both laws and without control, is an error of at most .05 of the
capacity for the goodput, and a factor of at most 1.3 for the p99, at each load. The server without control must also
collapse where the laws do not.
"""

from collections import defaultdict
from itertools import product
from typing import Any

from tidegate_bench import program, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.load import Load, Outcome, judge_generator, trial
from tidegate_bench.overload import Variant
from tidegate_bench.prediction import COLUMNS, compare, judge
from tidegate_bench.quota import PERIOD_MS, SHARE, tick_ms
from tidegate_bench.record import Record

WARM_UP_S = 2.5
MEASURED_S = 2.5
# The variants of the scenario, by their names there.
VARIANTS = (
    Variant("none", "service", "fifo", sticky=False),
    Variant("occupancy", "arrival", "class"),
    Variant("pi", "arrival", "class"),
)
# The load, as a multiple of the capacity, at which a server without control must have less goodput than with it.
COLLAPSED = 2.0


def predicted(record: Record) -> dict[str, Any]:
    """Measures the costs, and returns the results of the simulation with these costs."""
    costs, out = record.directory / "costs.toml", record.directory / "sim"
    quota = ("--quota", SHARE, "--period-ms", PERIOD_MS, "--tick-ms", tick_ms())
    calibrate = ("calibrate", "--mode", "stateless", "--rounds", 5, "--out", costs, *quota)
    program.lab(*calibrate, "--json", costs.with_suffix(".json"), profile="release")
    print(costs.read_text(), flush=True)
    return program.scenario("scenarios/predict.toml", out, "--world", "sim", "--costs", costs, profile="release")


class Show(Demonstration):
    def run(self) -> Results:
        prediction = predicted(self)
        capacity = prediction["capacity_cps"]
        print(f"predicted capacity with a fifth of a core: {capacity:.0f} calls/s")
        outcomes: dict[tuple[str, float], list[Outcome]] = defaultdict(list)
        loads = sorted({row["load"] for row in prediction["rows"]})
        for round_ in self.rounds:
            for law, multiple in product(VARIANTS, loads):
                load = Load(multiple * capacity, WARM_UP_S, MEASURED_S, seed=round_)
                outcomes[law.name, multiple].append(trial(load, law, "release", limited=True)[0])
            print(f"round {round_} of {len(self.rounds)} done", flush=True)
        rows = self.rows(
            "results",
            [
                {"variant": law.name, **compare(row, outcomes[law.name, row["load"]], capacity)}
                for law in VARIANTS
                for row in prediction["rows"]
                if row["variant"] == law.name
            ],
        )
        table.show(rows, COLUMNS, line=lambda row: f"{row['load']:4.1f}", block=lambda row: row["variant"])
        for law in VARIANTS:
            judge(self, [row for row in rows if row["variant"] == law.name], f"{law.name}: ")
        for world in ("sim_goodput", "real_goodput_median"):
            at = {row["variant"]: row[world] for row in rows if row["load"] == COLLAPSED}
            none, *laws = (at[law.name] for law in VARIANTS)
            self.expect(
                all(none < kept for kept in laws),
                f"{world}: at {COLLAPSED} times the capacity {none:.3f} without control, "
                f"{' and '.join(f'{kept:.3f}' for kept in laws)} with it",
            )
        judge_generator(self, [run for found in outcomes.values() for run in found])
        return {"capacity_cps": capacity, "rows": rows}
