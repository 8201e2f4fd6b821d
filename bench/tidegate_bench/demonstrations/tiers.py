"""On a fifth of a core, adaptive service does as well as the better of stateful and stateless service

Nothing is emulated: the kernel gives Tidegate 1 ms of every 5. The peak is that of `mode = "transaction"` without
control: the highest rate, found in steps of a factor of 1.25, at which 99 % of the calls are set up within 500 ms, and
at most one call in a hundred takes longer than 100 ms. Then 0.7 to 2.5 times this peak is offered to a pool of each
mode in turn, under the same law. Tidegate itself counts which calls had transactions, including those of the warm-up.
The cost of a call is the CPU time of the process divided by all offered calls, including the rejected ones.
"""

import argparse
from dataclasses import dataclass
from itertools import product
from typing import Any

from tidegate_bench import curve, peak, table
from tidegate_bench.curve import AtPeak, CurveDemonstration
from tidegate_bench.demonstration import Results
from tidegate_bench.load import Load, Outcome, judge_generator, trial
from tidegate_bench.overload import Variant
from tidegate_bench.quota import SHARE
from tidegate_bench.record import Record, Spread
from tidegate_bench.table import Column

MODES = ("transaction", "stateless", "adaptive")
MULTIPLES = (0.7, 1.2, 1.6, 2.5)

UNPROTECTED = Variant("none", "service", "fifo", sticky=False)
# The part of a stateless server's goodput that an adaptive one must have beyond the stateful peak.
KEPT_MIN = 0.92
# The part of the calls below this peak that must have transactions.
STATEFUL_MIN = 0.99


@dataclass(frozen=True)
class Point(AtPeak):
    """One mode under one load, in one round. The peak is that with transactions."""

    mode: str
    stateful: float
    """The share of the calls served that had transactions."""

    def row(self) -> dict[str, Any]:
        return super().row() | {"us_per_call": round(self.outcome.element_us_per_call, 3)}


def measure(mode: str, law: Variant, load: Load, profile: str) -> tuple[Outcome, float]:
    """Measures one load on a fresh Tidegate with a fifth of a core, and its share of stateful calls."""
    outcome, shown = trial(load, law, profile, limited=True, mode=mode)
    stateful, stateless = (shown.total("work_routed", tier=tier) for tier in ("stateful", "stateless"))
    return outcome, stateful / max(stateful + stateless, 1)


def of(points: list[Point], mode: str, multiple: float) -> list[Point]:
    return [point for point in points if (point.mode, point.multiple) == (mode, multiple)]


def goodput(points: list[Point], mode: str, multiple: float) -> float:
    """Returns the median goodput of the rounds, as a part of the peak."""
    return Spread.of([point.goodput for point in of(points, mode, multiple)]).median


COLUMNS = [
    curve.GOODPUT,
    Column("stateful", lambda point: point.stateful, 3),
    Column("µs a call", lambda point: point.outcome.element_us_per_call, 1),
    *curve.OUTCOME,
    curve.ELEMENT_DROPS,
]


def judge(record: Record, points: list[Point]) -> None:
    """Expects the adaptive pool to do as well as the better of the other two at each load."""
    below, *beyond = MULTIPLES
    stateful = min(point.stateful for point in of(points, "adaptive", below))
    record.expect(
        stateful >= STATEFUL_MIN, f"at {below} of the peak, adaptive: {stateful:.3f} or more of the calls are stateful"
    )
    for multiple in beyond:
        adaptive = goodput(points, "adaptive", multiple)
        stateless = goodput(points, "stateless", multiple)
        record.expect(
            adaptive >= KEPT_MIN * stateless,
            f"at {multiple}, adaptive: {adaptive / stateless:.2f} of the goodput without state",
        )
        always = goodput(points, "transaction", multiple)
        record.expect(
            adaptive > always, f"at {multiple}, adaptive: {adaptive / always:.2f} times that with transactions"
        )
    judge_generator(record, [point.outcome for point in points])


class Show(CurveDemonstration):
    # The share of calls with transactions falls within half a second. A law needs some time too.
    WARM_UP_S = 3.0
    MEASURED_S = 3.0

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().arguments(parser)
        parser.add_argument(
            "--law", choices=("pi", "occ"), default="pi", help="law of the servers (default %(default)s)"
        )
        parser.add_argument("--peak", type=float, help="peak of the server in calls/s (default: it is measured first)")

    def run(self) -> Results:
        law = Variant(self.options.law, "arrival", "class")
        points: list[Point] = []
        peak_cps: float | None = self.options.peak
        for round_ in self.rounds:
            if not self.options.peak:
                # With transactions and without control.
                peak_cps, _ = peak.peak(
                    lambda load: measure("transaction", UNPROTECTED, load, self.profile)[0], SHARE, peak_cps, round_
                )
            assert peak_cps
            print(f"round {round_}: {peak_cps:.0f} calls/s with transactions", flush=True)
            # The modes take turns, because the machine may be slower in one minute than in the next.
            for multiple, mode in product(MULTIPLES, MODES):
                load = self.load(multiple * peak_cps, round_)
                outcome, stateful = measure(mode, law, load, self.profile)
                points.append(Point(round_, multiple, peak_cps, outcome, mode, stateful))
        table.show(points, COLUMNS, line=lambda p: p.mode, block=lambda p: f"{p.multiple} of the peak")
        rows = self.rows("results", [point.row() for point in points])
        judge(self, points)
        return {"points": rows}
