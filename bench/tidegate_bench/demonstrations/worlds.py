"""One scenario in simulated time and on real sockets: goodput and delay are nearly the same

scenarios/overload-local.toml offers an emulated processor half to five times its capacity, under every law in it, with
three runs of each parameter set in each world. For each parameter set the table shows goodput as a part of the capacity
in both worlds and the difference, and the p99 of the set-up delay in both and the ratio. Both worlds are drawn in one
figure, and in one report. Each law decides once as the servers in the papers do and once as Tidegate does. On real
sockets the conditions of the scenario must hold too.
"""

from typing import Any

from tidegate_bench import program, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.demonstrations.laws import COLUMNS
from tidegate_bench.experiment import judge_generator, judge_scenario
from tidegate_bench.record import Spread

SCENARIO = "scenarios/overload-local.toml"
# The largest allowed median error and the largest allowed single error of the goodput, in parts of the capacity.
MEDIAN_MAX = 0.02
ERROR_MAX = 0.1


def compare(sim: dict[str, Any], real: dict[str, Any]) -> dict[str, Any]:
    delays = [row["p99_ms"]["median"] if row["p99_ms"] else None for row in (sim, real)]
    return {
        "variant": sim["variant"],
        "load": sim["load"],
        "sim_goodput": sim["goodput"]["median"],
        **{f"real_goodput_{key}": real["goodput"][key] for key in ("min", "median", "max")},
        "error": sim["goodput"]["median"] - real["goodput"]["median"],
        "sim_p99_ms": delays[0],
        "real_p99_ms": delays[1],
        "p99_ratio": delays[0] / delays[1] if delays[0] and delays[1] else None,
        "generator_load": real["generator_load"],
        "drops": real["drops"],
    }


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        sim, real = self.directory / "sim", self.directory / "real"
        simulated = program.scenario(SCENARIO, sim, "--world", "sim")
        # An emulated server and its callers need little of a core.
        measured = program.scenario(SCENARIO, real, "--world", "real", "--jobs", 4)
        judge_scenario(self, measured)
        rows = measured["rows"]
        table.show(rows, COLUMNS, line=lambda row: f"{row['load']:4.1f}", block=lambda row: row["variant"])
        self.expect(all(row["runs"] >= 3 for row in rows) and len(rows) == 48, "48 parameter sets, three runs of each")
        print(program.lab("report", sim, real, "--out", self.directory / "report.html"))
        at = {(row["variant"], row["load"]): row for row in rows}
        compared = [compare(row, at[row["variant"], row["load"]]) for row in simulated["rows"]]
        self.rows("results", compared)
        errors = [abs(row["error"]) for row in compared]
        worst = max(compared, key=lambda row: abs(row["error"]))
        ratios = [row["p99_ratio"] for row in compared if row["p99_ratio"] is not None]
        self.expect(
            Spread.of(errors).median <= MEDIAN_MAX,
            f"the goodput differs by {Spread.of(errors).median:.3f} of the capacity in the median",
        )
        self.expect(
            max(errors) <= ERROR_MAX,
            f"the goodput differs by at most {max(errors):.3f} ({worst['variant']}, load {worst['load']})",
        )
        spread = Spread.of(ratios)
        print(
            f"        p99 of the set-up delay, simulated / real: {spread.minimum:.2f} to {spread.maximum:.2f},"
            f" median {spread.median:.2f}"
        )
        judge_generator(self, measured["points"])
        return {"rows": compared}
