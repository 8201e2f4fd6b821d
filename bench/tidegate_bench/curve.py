"""The points of a curve of goodput over offered load, and their table."""

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from tidegate_bench import table
from tidegate_bench.demonstration import Demonstration
from tidegate_bench.load import Load, Outcome
from tidegate_bench.overload import Variant, bound
from tidegate_bench.table import Column


class CurveDemonstration(Demonstration):
    """A demonstration that offers several multiples of a peak, each for the same time."""

    PROFILE = "release"
    WARM_UP_S: ClassVar[float]
    MEASURED_S: ClassVar[float]

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--warm-up", type=float, default=cls.WARM_UP_S, help="duration of the warm-up in s (default %(default)s)"
        )
        parser.add_argument(
            "--seconds", type=float, default=cls.MEASURED_S, help="measured time in s (default %(default)s)"
        )

    def load(self, rate_cps: float, round_: int) -> Load:
        """Returns the load of a round. The number of the round is the seed."""
        return Load(rate_cps, self.options.warm_up, self.options.seconds, round_)


@dataclass(frozen=True)
class AtPeak:
    """One run at a multiple of a peak, in one round."""

    round: int
    multiple: float
    """The requested load, as a multiple of the peak."""
    peak_cps: float
    """The peak of the element without control."""
    outcome: Outcome

    @property
    def offered(self) -> float:
        """The offered load as a multiple of the peak. It is less than requested if the generator was too slow."""
        return self.outcome.offered_cps / self.peak_cps

    @property
    def goodput(self) -> float:
        """Goodput as a part of the peak."""
        return self.outcome.goodput_cps / self.peak_cps

    def row(self) -> dict[str, Any]:
        """Returns a row for a table of raw data."""
        own = {name: value for name, value in asdict(self).items() if name != "outcome"}
        return {**own, "goodput": round(self.goodput, 4), **self.outcome.row()}


@dataclass(frozen=True)
class Point:
    """One run of one element under one law, at a multiple of its capacity."""

    round: int
    element: str
    law: Variant
    multiple: float
    """The requested load, as a multiple of the capacity."""
    capacity_cps: float
    ratio: float
    """r/s: the cost of a rejected call, divided by that of a served call. The bound follows from it."""
    outcome: Outcome

    @property
    def name(self) -> str:
        return f"{self.element} {self.law.name}"

    @property
    def goodput(self) -> float:
        """Goodput as a part of the capacity."""
        return self.outcome.goodput_cps / self.capacity_cps

    @property
    def bound(self) -> float:
        return bound(self.multiple, self.ratio)

    @property
    def of_bound(self) -> float | None:
        """Goodput as a part of the bound, or `None` if the bound is 0."""
        return self.goodput / self.bound if self.bound > 0 else None

    def row(self) -> dict[str, Any]:
        """Returns a row for a table of raw data."""
        row = {"round": self.round, "element": self.element, "law": self.law.law, "decide": self.law.decide}
        row |= {"queue": self.law.queue, "multiple": self.multiple, "goodput_of_peak": round(self.goodput, 4)}
        return row | {"bound": round(self.bound, 4), **self.outcome.row()}


OUTCOME = [
    Column("rejected/s", lambda point: point.outcome.rejected_cps),
    Column("repeated", lambda point: point.outcome.retransmission_ratio, 2),
    Column("p50 ms", lambda point: point.outcome.p50_ms, 1),
    Column("p99 ms", lambda point: point.outcome.p99_ms, 1),
    Column("generator", lambda point: point.outcome.usage.caller + point.outcome.usage.callee, 2),
    Column("too slow", lambda point: point.outcome.too_slow, 0, "sum"),
    Column("drops: own", lambda point: point.outcome.usage.drops, 0, "sum"),
]
"""The outcomes of the calls, the cores that the generator used, the runs in which it was too slow, and its drops."""
BOUND = [Column("bound", lambda point: point.bound, 2), Column("of bound", lambda point: point.of_bound, 2)]
GOODPUT = Column("goodput/C", lambda point: point.goodput, 3, "spread")
ELEMENT_DROPS = Column("element", lambda point: point.outcome.usage.element_drops, 0, "sum")


def show(points: Iterable[Point]) -> None:
    """Prints a block for each element and law, and in it a line for each load with the spread of its rounds.

    A value without a spread is the median. For drops and runs with a generator that was too slow, it is the sum.
    """
    columns = [GOODPUT, *BOUND, *OUTCOME, ELEMENT_DROPS]
    table.show(points, columns, line=lambda point: f"{point.multiple:4.1f}", block=lambda point: point.name)
