"""A prediction of the simulator compared with a measurement at the same loads."""

from typing import Any

from tidegate_bench.load import Outcome
from tidegate_bench.record import Spread
from tidegate_bench.table import Column


def compare(row: dict[str, Any], runs: list[Outcome], capacity_cps: float) -> dict[str, Any]:
    """Returns the predicted values of one load, the measured ones, and the error of the goodput.

    Goodput and error are parts of the capacity.
    """
    goodput = Spread.of([run.goodput_cps / capacity_cps for run in runs])
    p99 = Spread.of([run.p99_ms for run in runs])
    return {
        "load": row["load"],
        "sim_goodput": round(row["goodput"]["median"], 4),
        **{f"real_goodput_{name}": round(value, 4) for name, value in goodput._asdict().items()},
        "error": round(row["goodput"]["median"] - goodput.median, 4),
        "sim_p99_ms": round(row["p99_ms"]["median"] if row["p99_ms"] else float("nan"), 2),
        **{f"real_p99_ms_{name}": value for name, value in p99._asdict().items()},
        "real_cpu": round(Spread.of([run.usage.steady_cpu_s / run.usage.steady_s for run in runs]).median, 4),
        "generator_cpu": round(max(run.usage.caller + run.usage.callee for run in runs), 3),
        "element_drops": sum(run.usage.element_drops for run in runs),
        "generator_drops": sum(run.usage.drops for run in runs),
        "too_slow": sum(run.too_slow for run in runs),
    }


COLUMNS = [
    Column("goodput/C: sim", "sim_goodput", 3),
    *(Column(f"real {name}", f"real_goodput_{name}", 3) for name in Spread._fields),
    Column("error", "error", 3),
    Column("p99 ms: sim", "sim_p99_ms", 1),
    *(Column(f"real {name}", f"real_p99_ms_{name}", 1) for name in Spread._fields),
    Column("cpu: element", "real_cpu", 3),
    Column("generator", "generator_cpu", 2),
    Column("drops: element", "element_drops"),
    Column("generator", "generator_drops"),
]
