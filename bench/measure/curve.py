"""Goodput over offered load: the points of such a curve, and how they are shown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .load import Outcome
from .overload import bound
from .record import Spread


@dataclass(frozen=True)
class Point:
    """One run of one element under one law, at a multiple of its capacity."""

    round: int
    element: str
    law: str
    decide: str
    queue: str
    multiple: float
    capacity_cps: float
    ratio: float
    """r/s, by which the bound is computed."""
    outcome: Outcome

    @property
    def name(self) -> str:
        return f"{self.element} {self.law} ({self.decide}, {self.queue})"

    @property
    def goodput(self) -> float:
        """As a part of the capacity."""
        return self.outcome.goodput_cps / self.capacity_cps

    @property
    def bound(self) -> float:
        return bound(self.multiple, self.ratio)

    @property
    def of_bound(self) -> float | None:
        """Goodput as a part of the bound; none where nothing can be kept."""
        return self.goodput / self.bound if self.bound > 0 else None

    def row(self) -> dict[str, Any]:
        """For a table of raw data."""
        outcome, usage = self.outcome, self.outcome.usage
        return {
            "round": self.round,
            "element": self.element,
            "law": self.law,
            "decide": self.decide,
            "queue": self.queue,
            "multiple": self.multiple,
            "offered_cps": round(outcome.offered_cps, 1),
            "goodput_cps": round(outcome.goodput_cps, 1),
            "goodput_of_peak": round(self.goodput, 4),
            "bound": round(self.bound, 4),
            "retransmission_ratio": round(outcome.retransmission_ratio, 4),
            "p50_ms": outcome.p50_ms,
            "p99_ms": outcome.p99_ms,
            "generator_cpu": round(usage.caller + usage.callee, 3),
            "drops": usage.drops,
            "generator_too_slow": outcome.too_slow,
            "refused_cps": round(outcome.refused_cps, 1),
            "element_cpu": round(usage.element, 4),
            "element_drops": usage.element_drops,
        }


_HEADER = (
    "  load   goodput/C:   min    median      max  bound  of bound  repeated   p50 ms   p99 ms  "
    "refused/s   generator  drops: own element"
)


def show(points: Iterable[Point]) -> None:
    """Prints a block for each element and law, a line for each load, with its rounds' spread.

    Where no spread is printed the value is the median, and of drops the sum.
    """
    listed = list(points)
    for name in dict.fromkeys(point.name for point in listed):
        print(f"\n{name}\n{_HEADER}")
        mine = [point for point in listed if point.name == name]
        for multiple in sorted({point.multiple for point in mine}):
            _line([point for point in mine if point.multiple == multiple])
    print(flush=True)


def _line(points: list[Point]) -> None:
    def median(values: Iterable[float]) -> float:
        return Spread.of(list(values)).median

    outcomes = [point.outcome for point in points]
    parts = [point.of_bound for point in points if point.of_bound is not None]
    of_bound = f"{median(parts):9.2f}" if parts else f"{'-':>9}"
    slow = " (generator too slow)" if any(outcome.too_slow for outcome in outcomes) else ""
    print(
        f"{points[0].multiple:6.1f}         {Spread.of([p.goodput for p in points]).text(3)}"
        f"{median(p.bound for p in points):7.2f} {of_bound} "
        f"{median(o.retransmission_ratio for o in outcomes):9.2f} "
        f"{median(o.p50_ms for o in outcomes):8.1f} {median(o.p99_ms for o in outcomes):8.1f} "
        f"{median(o.refused_cps for o in outcomes):10.0f} "
        f"{median(o.usage.caller + o.usage.callee for o in outcomes):11.2f} "
        f"{sum(o.usage.drops for o in outcomes):11} "
        f"{sum(o.usage.element_drops for o in outcomes):7}{slow}"
    )
