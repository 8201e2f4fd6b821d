"""A fifth of a core, 0.5 to 5 times its peak: Tidegate with pi keeps 80 % of the bound

Nothing is emulated: the kernel gives the element 1 ms of every 5. Its peak is the highest
rate, climbing by 1.25, at which 99 % of the calls are set up within 500 ms. Tidegate as the
papers' servers are (`none`, one FIFO) and with `pi` stand beside Kamailio under the same
quota, bare and with two algorithms of its ratelimit module: FEEDBACK at 90 % of the quota,
and TAILDROP at 90 % of the peak, which it is told. Kamailio has the socket buffer that it
has by default, which serves it better here than a large one. The bound of each is that of
its own r/s: the CPU that a refused call costs it, over the CPU that a served one costs it
at its peak.
"""

import argparse
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from tidegate_bench import curve, kamailio, peak, tidegate
from tidegate_bench.curve import Point
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.kamailio import DEFAULT_BUFFER_BYTES, LoadTeller
from tidegate_bench.load import Load, Outcome, offer
from tidegate_bench.overload import MULTIPLES, REFUSING, Variant
from tidegate_bench.process import Process, Stage
from tidegate_bench.quota import SHARE, Quota
from tidegate_bench.record import Spread

# FEEDBACK changes what it drops by 2.5 points at each tenth of a second in which the load is
# 10 % above its target: it needs 3 s to refuse four calls of five.
WARM_UP_S = 3.5
MEASURED_S = 2.5
# Of the quota, or of the peak: where the peers' control is set, as pi's is.
TARGET = 0.9
KEPT_MIN = 0.8

PROTECTED = Variant("pi", "arrival", "class")
LAWS = {
    "tidegate": (Variant("none", "service", "fifo", sticky=False), PROTECTED),
    # As Kamailio works: it judges what it takes from its socket, which is one FIFO.
    "kamailio": tuple(Variant(law, "service", "fifo") for law in ("none", "feedback", "taildrop")),
}
UNPROTECTED = {element: laws[0] for element, laws in LAWS.items()}


@dataclass(frozen=True)
class Capacity:
    """What an element can do under the quota, and what that costs it, in one round."""

    peak_cps: float
    served_us: float
    refused_us: float

    @property
    def ratio(self) -> float:
        return self.refused_us / self.served_us


@contextlib.contextmanager
def started(
    stage: Stage, quota: Quota, element: str, law: Variant, backend_port: int, peak_cps: float, profile: str
) -> Iterator[tuple[Process, str]]:
    """The element under the quota; where it listens. `peak_cps` is what TAILDROP is told."""
    if element == "tidegate":
        edge = tidegate.start(stage, [backend_port], profile, quota, tables=law.tables())
        yield edge.process, edge.address
        return
    if law.law == "none":
        bare = kamailio.run(stage, backend_port, buffer_bytes=DEFAULT_BUFFER_BYTES, quota=quota)
        yield bare.process, bare.address
        return
    commands = stage.directory / "commands"
    # FEEDBACK must not look for itself (see LoadTeller): its next tick is in an hour.
    pipe, interval = {
        "feedback": (f"0:FEEDBACK:{100 * TARGET:.0f}", 3600),
        "taildrop": (f"0:TAILDROP:{TARGET * peak_cps:.0f}", 1),
        REFUSING.law: ("0:TAILDROP:0", 1),
    }[law.law]
    running = kamailio.run(
        stage,
        backend_port,
        configuration="kamailio-ratelimit.cfg",
        buffer_bytes=DEFAULT_BUFFER_BYTES,
        defines={"PIPE": f'"{pipe}"', "INTERVAL": f"{interval}", "RPC": f'"{commands}"'},
        quota=quota,
    )
    with LoadTeller(running.process, commands, SHARE):
        yield running.process, running.address


def measure(element: str, law: Variant, load: Load, profile: str, peak_cps: float = 0) -> Outcome:
    """One load on a fresh element before a fresh callee."""
    with Quota() as quota, Stage() as stage:
        callee = tidegate.callee(stage, "uas", profile)
        with started(stage, quota, element, law, callee.port, peak_cps, profile) as (it, address):
            outcome = offer(stage, it, address, callee, load, profile)
        stage.kill()
        return outcome


def capacity(element: str, before: Capacity | None, round_: int, profile: str) -> Capacity:
    """Climbs to the peak, from where the round before found it."""

    peak_cps, full = peak.peak(
        lambda load: measure(element, UNPROTECTED[element], load, profile),
        SHARE,
        before.peak_cps if before else None,
        round_,
    )
    refusing = measure(element, REFUSING, Load(3 * peak_cps, 1.0, 2.0, seed=round_), profile)
    found = Capacity(peak_cps=peak_cps, served_us=full.element_us_per_call, refused_us=refusing.element_us_per_call)
    print(
        f"round {round_}: {element} carries {peak_cps:.0f} calls/s; a call costs it "
        f"{found.served_us:.1f} µs served and {found.refused_us:.1f} refused: r/s "
        f"{found.ratio:.3f}",
        flush=True,
    )
    return found


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--warm-up", type=float, default=WARM_UP_S, help="s (%(default)s)")
        parser.add_argument("--seconds", type=float, default=MEASURED_S, help="s (%(default)s)")

    def run(self) -> Results:
        capacities: dict[str, list[Capacity]] = {element: [] for element in LAWS}
        for element, found in capacities.items():
            for round_ in self.rounds:
                found.append(capacity(element, found[-1] if found else None, round_, self.profile))

        points = []
        for round_ in self.rounds:
            for multiple, (element, laws) in product(MULTIPLES, LAWS.items()):
                peak_cps = Spread.of([each.peak_cps for each in capacities[element]]).median
                ratio = Spread.of([each.ratio for each in capacities[element]]).median
                load = Load(multiple * peak_cps, self.options.warm_up, self.options.seconds, round_)
                for law in laws:
                    outcome = measure(element, law, load, self.profile, peak_cps)
                    points.append(Point(round_, element, law, multiple, peak_cps, ratio, outcome))
            print(f"round {round_} of {len(self.rounds)} done", flush=True)
        curve.show(points)
        rows = self.rows("results", [point.row() for point in points])
        for multiple in MULTIPLES:
            protected = [point for point in points if point.law is PROTECTED and point.multiple == multiple]
            kept = [point.of_bound for point in protected if point.of_bound is not None]
            if kept:
                told = f"Tidegate with pi at {multiple} of its peak keeps {min(kept):.2f} of the bound"
                self.expect(min(kept) >= KEPT_MIN, told)
            else:
                least = min(point.goodput for point in protected)
                print(f"        at {multiple} of its peak the bound is 0; pi keeps {least:.2f}")
        for law in LAWS["kamailio"][1:]:
            refused = max(point.outcome.refused_cps for point in points if point.law is law)
            self.expect(refused > 0, f"Kamailio's {law.law} is at work: {refused:.0f} calls/s refused")
        slow = sum(point.outcome.too_slow for point in points)
        self.expect(slow == 0, f"the generator was too slow in {slow} of {len(points)} runs")
        return {
            "capacities": {name: [vars(each) for each in found] for name, found in capacities.items()},
            "points": rows,
        }
