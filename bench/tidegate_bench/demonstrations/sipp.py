"""At twice the capacity, the goodput of every law with SIPp as the caller equals that with our own caller

Tidegate emulates a server of 200 calls/s and is offered 400, under each law of scenarios/overload-local.toml (or of
scenarios/laws.toml: SHOW="--scenario laws"). The callers are `tidegate load uac`, whose calls are independent as in
these scenarios or come at even intervals, and SIPp, which starts calls in bursts of 10 ms and whose set-up times come
from its own trace. SIPp shares no code with our caller or with Tidegate. So the comparison would show a fault of our
caller. With the best law each caller must set up half of the bound, because two callers without calls would agree.
"""

import argparse
from itertools import product

from tidegate_bench import curve, load, sipp_load
from tidegate_bench.curve import Point
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.load import Load, Offer, trial
from tidegate_bench.overload import Scenario, Variant
from tidegate_bench.record import Record, Spread

MULTIPLE = 2.0
# The largest allowed distance of SIPp's median from the range of our caller, as a part of the capacity. It is not 0,
# because the two callers retransmit at different times.
DIFFERENCE_MAX = 0.05
# The least goodput of every run of the best law, as a part of the bound. Without calls there would be no difference.
KEPT_MIN = 0.5

# The goodput of a full FIFO depends on how calls arrive, and SIPp's bursts differ from both of our patterns.
OURS = ("poisson", "uniform")
CALLERS: dict[str, tuple[Offer, str]] = {
    **{arrivals: (load.offer, arrivals) for arrivals in OURS},
    "sipp": (sipp_load.offer, "uniform"),
}


def agree(record: Record, law: Variant, points: list[Point]) -> None:
    """Expects SIPp's goodput under one law to be within the range of our caller."""

    def found(*callers: str) -> Spread:
        names = [f"{caller} {law.name}" for caller in callers]
        return Spread.of([point.goodput for point in points if point.name in names])

    ours, sipps = found(*OURS), found("sipp")
    outside = max(ours.minimum - sipps.median, sipps.median - ours.maximum, 0.0)
    record.expect(
        outside <= DIFFERENCE_MAX,
        f"{law.name}: {ours.minimum:.3f} to {ours.maximum:.3f} C by our caller, "
        f"{sipps.minimum:.3f} to {sipps.maximum:.3f} by SIPp, whose median is {outside:.3f} outside this range",
    )


class Show(Demonstration):
    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--scenario",
            choices=("overload-local", "laws"),
            default="overload-local",
            help="the server and its laws (default %(default)s)",
        )
        parser.add_argument(
            "--warm-up", type=float, default=3.0, help="duration of the warm-up in s (default %(default)s)"
        )
        parser.add_argument("--seconds", type=float, default=8.0, help="measured time in s (default %(default)s)")

    def run(self) -> Results:
        scenario = Scenario.read(self.options.scenario)
        costs = scenario.costs
        print(
            f"emulated: C {costs.capacity_cps:.1f} calls/s, s {1e3 * costs.call_s:.3f} ms, "
            f"r {1e3 * costs.rejection_s:.3f} ms, r/s {costs.ratio:.3f}"
        )
        points = []
        for round_ in self.rounds:
            for law, (caller, (offer, arrivals)) in product(scenario.variants, CALLERS.items()):
                rate = MULTIPLE * costs.capacity_cps
                calls = Load(rate, self.options.warm_up, self.options.seconds, round_, arrivals=arrivals)
                outcome, _ = trial(calls, law, tables=costs.tables(), queue_max=scenario.queue_max, by=offer)
                points.append(Point(round_, caller, law, MULTIPLE, costs.capacity_cps, costs.ratio, outcome))
            print(f"round {round_} of {len(self.rounds)} done", flush=True)
        curve.show(points)
        rows = self.rows("results", [point.row() for point in points])
        for law in scenario.variants:
            agree(self, law, points)
        kept = max(min(point.of_bound or 0.0 for point in points if point.law == law) for law in scenario.variants)
        self.expect(kept >= KEPT_MIN, f"with the best law each caller sets up at least {kept:.2f} of the bound")
        drops = sum(point.outcome.usage.drops for point in points)
        self.expect(drops == 0, f"{drops} datagrams lost by the callers and callees")
        slow = sum(point.outcome.too_slow for point in points)
        self.expect(slow == 0, f"the caller was too slow in {slow} of {len(points)} runs")
        return {"points": rows}
