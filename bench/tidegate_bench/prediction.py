"""A prediction of the simulator compared with a measurement at the same loads."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_bench.load import Outcome
from tidegate_bench.record import Record, Spread
from tidegate_bench.table import Column

# The aim: the largest allowed error of a predicted goodput, in parts of the capacity, and the largest allowed factor
# between a predicted p99 and the measured one.
ERROR_MAX = 0.05
RATIO_MAX = 1.3
# Set-up delays shorter than this are not compared, because they come mostly from the generator.
DELAY_MIN_MS = 2.0


@dataclass(frozen=True)
class Round:
    """A prediction and the runs that it predicts, which follow at once, so that the machine has the same speed."""

    results: dict[str, Any]
    """The results of the simulation, with the costs that were measured in this round."""
    runs: Sequence[Outcome]
    """One run for each row of the results."""

    @property
    def capacity_cps(self) -> float:
        """The predicted capacity in calls/s."""
        return float(self.results["capacity_cps"])


def compare(rounds: Sequence[Round]) -> list[dict[str, Any]]:
    """Returns, for each row of the results, the predicted values, the measured ones, and the error of the goodput.

    Goodput and error are parts of the capacity that was predicted in the same round. The error of each round is
    determined separately.
    """
    return [_compare(rounds, index) for index in range(len(rounds[0].runs))]


def _compare(rounds: Sequence[Round], index: int) -> dict[str, Any]:
    rows = [each.results["rows"][index] for each in rounds]
    runs = [each.runs[index] for each in rounds]
    predicted = [row["goodput"]["median"] for row in rows]
    measured = [run.goodput_cps / each.capacity_cps for each, run in zip(rounds, runs, strict=True)]
    goodput = Spread.of(measured)
    errors = Spread.of([told - found for told, found in zip(predicted, measured, strict=True)])
    # Runs that set up no call have no delay.
    set_up = [run.p99_ms for run in runs if run.p99_ms is not None]
    p99: dict[str, float | None] = Spread.of(set_up)._asdict() if set_up else dict.fromkeys(Spread._fields)
    delays = [row["p99_ms"]["median"] for row in rows if row["p99_ms"]]
    return {
        "variant": rows[0]["variant"],
        "load": rows[0]["load"],
        "sim_goodput": round(Spread.of(predicted).median, 4),
        **{f"real_goodput_{name}": round(value, 4) for name, value in goodput._asdict().items()},
        **{f"error_{name}": round(value, 4) for name, value in errors._asdict().items()},
        "sim_p99_ms": round(Spread.of(delays).median, 2) if delays else None,
        **{f"real_p99_ms_{name}": value for name, value in p99.items()},
        "real_cpu": round(Spread.of([run.usage.steady_cpu_s / run.usage.steady_s for run in runs]).median, 4),
        "generator_cpu": round(max(run.usage.caller + run.usage.callee for run in runs), 3),
        "element_drops": sum(run.usage.element_drops for run in runs),
        "generator_drops": sum(run.usage.drops for run in runs),
        "too_slow": sum(run.too_slow for run in runs),
    }


def factor(predicted: float | None, measured: float | None) -> float:
    """Returns the factor between two values, at least 1. It is infinite if one of them is 0 or missing."""
    if predicted is None or measured is None or not (predicted > 0 and measured > 0):
        return math.inf
    return max(predicted / measured, measured / predicted)


def _is_compared(row: Mapping[str, Any]) -> bool:
    """Returns whether the delays of this row count. If only one side set up calls, their factor is infinite."""
    predicted, measured = row["sim_p99_ms"], row["real_p99_ms_median"]
    if predicted is None or measured is None:
        return (predicted is None) != (measured is None)
    return bool(measured >= DELAY_MIN_MS)


def judge(record: Record, rows: Sequence[Mapping[str, Any]], subject: str = "") -> None:
    """Expects that goodput and p99 are predicted at each load as well as the aim says.

    `subject` is the beginning of the condition, such as `pi: `.
    """
    error = max(abs(row["error_median"]) for row in rows)
    record.expect(
        error <= ERROR_MAX, f"{subject}the goodput is predicted to within {error:.3f} of the capacity at the worst"
    )
    compared = [row for row in rows if _is_compared(row)]
    factors = [factor(row["sim_p99_ms"], row["real_p99_ms_median"]) for row in compared]
    near = sum(each <= RATIO_MAX for each in factors)
    record.expect(
        near == len(factors),
        f"{subject}the p99 is predicted to a factor of {RATIO_MAX} at {near} of {len(factors)} loads, and to a factor "
        f"of {max(factors, default=1.0):.2f} at the worst",
    )


COLUMNS = [
    Column("goodput/C: sim", "sim_goodput", 3),
    *(Column(f"real {name}", f"real_goodput_{name}", 3) for name in Spread._fields),
    *(Column(f"error {name}", f"error_{name}", 3) for name in Spread._fields),
    Column("p99 ms: sim", "sim_p99_ms", 1),
    *(Column(f"real {name}", f"real_p99_ms_{name}", 1) for name in Spread._fields),
    Column("cpu: element", "real_cpu", 3),
    Column("generator", "generator_cpu", 2),
    Column("drops: element", "element_drops"),
    Column("generator", "generator_drops"),
]
