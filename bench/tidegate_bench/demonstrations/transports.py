"""At up to ten times the peak, goodput over TCP and TLS is about as close to its bound as over UDP

Tidegate has the default overload control: the law `tide` and the disposal `auto`. Callers use UDP, TCP or TLS. The back
end uses UDP. The capacity of Tidegate is limited in two ways: `emulated` is `[emulate]` of
scenarios/overload-local.toml, 200 calls/s in model time. `quota` is a fifth of a core, 1 ms of every 5. Over TCP and
TLS the callers have 100 connections, which stay open. With `--connections each`, every call opens its own connection.

The peak is found for each transport, with the law `none`. It is the highest rate at which Tidegate sets up 99 % of the
calls within 500 ms, and at most one call in a hundred takes longer than 100 ms. The search raises the rate by a factor
of 1.25. Then 0.5 to 10 times the peak is offered. Goodput counts calls that are set up within 500 ms.

The bound is the highest goodput that is possible if each served call takes the time s that it takes at the peak. Over
UDP it is the whole capacity, because the kernel drops INVITEs before Tidegate reads them. Over TCP and TLS Tidegate
reads each INVITE. So each call that is not set up takes at least the time d for reading and dropping its INVITE. At a
load above s/d times the capacity the bound is 0. With `quota`, d is measured under a law that drops nearly all calls
after reading, at a high load, because reading takes more time while the processor is not busy. Goodput can be above the
bound, because under overload Tidegate serves calls in larger batches, and a call then takes less time than s.

Two things are expected. Over TCP and TLS at each load, goodput as a part of its bound is at least 0.9 of that over UDP,
if the bound is above 0.05 of the peak. Over each transport, goodput falls from one load to the next by at most 0.25 of
the peak more than the bound falls.

`--quick` runs one round of three loads with one capacity (default: `quota`), in four minutes.
"""

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import inf
from typing import Any

from tidegate_bench import access, curve, load, peak, table, tidegate
from tidegate_bench.access import CONNECTIONS, MODES, TRANSPORTS, Access, Certificate
from tidegate_bench.curve import AtPeak, CurveDemonstration
from tidegate_bench.demonstration import Results
from tidegate_bench.load import Load, Outcome
from tidegate_bench.overload import REJECTING, Costs, Scenario, Variant, bound
from tidegate_bench.process import Stage
from tidegate_bench.quota import SHARE, Quota
from tidegate_bench.record import Spread
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.table import Column
from tidegate_bench.tidegate import Metrics

CAPACITIES = ("emulated", "quota")
MULTIPLES = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
# The minimum of goodput over bound over streams, as a part of the same value over UDP.
OF_UDP_MIN = 0.9
# The largest permitted fall of goodput from one load to the next beyond that of the bound, as a part of the peak.
CLIFF = 0.25
# If the bound is at most this part of the peak, goodput is not compared with it.
BOUND_MIN = 0.05
# Maximum goodput, as a part of the peak. If a server carries more, the wrong peak was found.
GOODPUT_MAX = 1.5

QUICK_MULTIPLES = (1.0, 2.0, 4.0)
# The kernel drops INVITEs after a second or two.
QUICK_WARM_UP_S = 3.0
QUICK_S = 1.5

# Without these tables, Tidegate has its default overload control.
UNPROTECTED = Variant("none", disposal="auto").tables()
PROTECTED = ""
DROPPING = replace(REJECTING, disposal="drop").tables()
# Times of the measurement of d, and its load as a multiple of the load whose INVITEs take the whole capacity.
DROPPING_WARM_UP_S = 1.0
DROPPING_MEASURED_S = 2.0
DROPPING_LOAD = 0.9
DROPPING_RUNS_MAX = 4


def measure(
    capacity: str, by: Access, overload: str, offered: Load, profile: str, costs: Costs | None
) -> tuple[Outcome, Metrics]:
    """Offers one load to a new Tidegate in front of a new callee. Returns the outcome and the metrics of Tidegate."""
    with Quota() if capacity == "quota" else nullcontext() as quota, Stage() as stage:
        certificate = Certificate.make(stage.directory) if by.transport == "tls" else None
        callee = tidegate.callee(stage, "uas", profile)
        port, tables = 0, overload + (costs.tables() if costs else "")
        if by.over_streams:
            port = free_port()
            tables += access.listener(by.transport, port, certificate) + access.ROOM
        edge = tidegate.start(stage, [callee.port], profile, quota, mode="transaction", tables=tables)
        target = f"{LOCALHOST}:{port or edge.port}"
        options = by.options(certificate) if by.over_streams else ["--callers", str(CONNECTIONS)]
        outcome = load.offer(stage, edge.process, target, callee, offered, profile, options=options)
        metrics = edge.metrics()
        # An overloaded server may need a long time to stop in an orderly way.
        stage.kill()
    return outcome, metrics


@dataclass(frozen=True)
class Trial(AtPeak):
    """One load over one transport, in one round. Each transport has its own peak."""

    capacity: str
    by: Access
    capacity_cps: float
    """The capacity of the emulated processor, or the peak."""
    ratio: float
    """d/s, or 0 if calls can be dropped at no cost."""
    filtered: int
    """Datagrams that the kernel, or the emulated host in its place, dropped on purpose."""
    unserved: int
    """Connections that Tidegate reset or did not accept."""

    @property
    def kept(self) -> float:
        """Goodput as a part of the peak, at most 1, because a server may carry more than the peak that was found."""
        return min(self.goodput, 1.0)

    @property
    def bound(self) -> float:
        """The highest possible goodput, as a part of the peak."""
        part = bound(self.outcome.offered_cps / self.capacity_cps, self.ratio)
        return part * self.capacity_cps / self.peak_cps

    @property
    def kept_max(self) -> float:
        """The highest possible value of `kept`."""
        return min(self.bound, 1.0)

    @property
    def of_bound(self) -> float | None:
        """Goodput as a part of the bound, or `None` if the bound is at most `BOUND_MIN`."""
        return self.goodput / self.bound if self.bound > BOUND_MIN else None

    def row(self) -> dict[str, Any]:
        """Returns a row for a table of raw data."""
        row = {"round": self.round, "capacity": self.capacity, "transport": self.by.transport}
        row |= {"connections": self.by.mode, "multiple": self.multiple, "peak_cps": self.peak_cps}
        row |= {"capacity_cps": self.capacity_cps, "ratio": self.ratio}
        row |= {name: round(getattr(self, name), 4) for name in ("offered", "goodput", "bound")}
        return row | {"filtered": self.filtered, "unserved": self.unserved, **self.outcome.row()}


COLUMNS = [
    Column("offered", lambda one: one.offered, 2),
    Column("goodput/s", lambda one: one.outcome.goodput_cps),
    Column("goodput/peak", lambda one: one.goodput, 3, "spread"),
    Column("d/s", lambda one: one.ratio, 3),
    *curve.BOUND,
    *curve.OUTCOME,
    Column("element", lambda one: one.outcome.usage.element_drops, 0, "sum"),
    Column("filtered", lambda one: one.filtered, 0, "sum"),
    Column("connections", lambda one: one.outcome.opened),
    Column("unserved", lambda one: one.unserved, 0, "sum"),
    Column("own losses", lambda one: one.outcome.own_losses, 0, "sum"),
]


class Show(CurveDemonstration):
    WARM_UP_S = 3.5
    MEASURED_S = 2.5

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().arguments(parser)
        parser.add_argument("--quick", action="store_true", help="measure only one round of three loads")
        parser.add_argument(
            "--capacity", help=f"any of {','.join(CAPACITIES)}, separated by commas (default: all; with --quick: quota)"
        )
        parser.add_argument(
            "--transport", default=",".join(TRANSPORTS), help="transports, separated by commas (default %(default)s)"
        )
        parser.add_argument(
            "--connections",
            choices=MODES,
            default=MODES[0],
            help="use of connections over TCP and TLS (default %(default)s)",
        )
        parser.add_argument(
            "--multiples",
            help=f"offered loads as multiples of the peak (default {','.join(f'{m:g}' for m in MULTIPLES)})",
        )

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        if options.quick:
            options.rounds, options.warm_up, options.seconds = 1, QUICK_WARM_UP_S, QUICK_S
        options.capacity = options.capacity or ("quota" if options.quick else ",".join(CAPACITIES))
        for name, known in (("capacity", CAPACITIES), ("transport", TRANSPORTS)):
            chosen = getattr(options, name).split(",")
            if unknown := set(chosen) - set(known):
                raise SystemExit(f"--{name}: {', '.join(unknown)} is none of {', '.join(known)}")
            setattr(options, name, chosen)
        multiples = QUICK_MULTIPLES if options.quick else MULTIPLES
        options.multiples = [float(m) for m in options.multiples.split(",")] if options.multiples else list(multiples)

    def run(self) -> Results:
        trials: list[Trial] = []
        peaks: dict[tuple[str, Access], float] = {}
        ways = Access.all(self.options.transport, [self.options.connections])
        for round_, capacity, by in product(self.rounds, self.options.capacity, ways):
            trials += self.curve(capacity, by, round_, peaks)
            print(f"round {round_}: {capacity} {by} done", flush=True)
        table.show(
            trials, COLUMNS, line=lambda one: f"{one.multiple:4.1f}", block=lambda one: f"{one.capacity} {one.by}"
        )
        rows = self.rows("results", [one.row() for one in trials])
        self.judge(trials)
        return {"trials": rows}

    def curve(self, capacity: str, by: Access, round_: int, peaks: dict[tuple[str, Access], float]) -> list[Trial]:
        """Finds the peak, starting from that of the previous round, and offers multiples of it."""
        costs = Scenario.read().costs if capacity == "emulated" else None

        def offer(offered: Load, overload: str = UNPROTECTED) -> Outcome:
            return measure(capacity, by, overload, offered, self.profile, costs)[0]

        before = peaks.get((capacity, by)) or (costs.capacity_cps if costs else None)
        settings = peak.QUICK if self.options.quick else peak.THOROUGH
        peak_cps, full = peak.peak(offer, SHARE, before, round_, settings)
        peaks[capacity, by] = peak_cps
        served_us = 1e6 * costs.call_s if costs else full.steady_us_per_call
        print(f"round {round_}: {capacity} {by}: the peak is {peak_cps:.0f} calls/s, s = {served_us:.1f} µs")
        ratio = 0.0
        if by.over_streams:
            ratio = (costs.offer_us if costs else dropped_us(offer, peak_cps, served_us, round_)) / served_us
        trials = []
        for multiple in self.options.multiples:
            offered = self.load(multiple * peak_cps, round_)
            outcome, shown = measure(capacity, by, PROTECTED, offered, self.profile, costs)
            self.text(f"{capacity}-{str(by).replace(' ', '-')}-{multiple:g}-{round_}.metrics", shown.text)
            filtered = shown.total("udp_filtered") + shown.total("emulated_filtered")
            unserved = sum(shown.total("connections_failed", cause=cause) for cause in ("late", "limit"))
            limit_cps = costs.capacity_cps if costs else peak_cps
            trials.append(
                Trial(round_, multiple, peak_cps, outcome, capacity, by, limit_cps, ratio, filtered, unserved)
            )
        return trials

    def judge(self, trials: list[Trial]) -> None:
        """Expects that streams keep nearly the same part of their bound as UDP, and that goodput has no cliff."""
        for capacity in self.options.capacity:
            curves: dict[str, dict[float, list[Trial]]] = {}
            for one in trials:
                if one.capacity == capacity:
                    curves.setdefault(str(one.by), {}).setdefault(one.multiple, []).append(one)
            udp = curves.get("udp")
            for by, points in curves.items():
                for multiple, found in sorted(points.items()):
                    if by != "udp":
                        told = f"{capacity}: at {multiple:g} times its peak, {by}"
                        self.compare(told, found, udp[multiple] if udp else [])
                for low, high in pairwise(sorted(points)):
                    lost, possible = (
                        median(points[low], name) - median(points[high], name) for name in ("kept", "kept_max")
                    )
                    # Below the peak the bound rises.
                    possible = max(possible, 0.0)
                    told = f"{capacity}: from {low:g} to {high:g} times its peak, {by} loses {lost:.2f} of the peak"
                    self.expect(lost <= CLIFF + possible, f"{told}, its bound {possible:.2f}")
                most = max(median(found, "goodput") for found in points.values())
                self.expect(
                    most <= GOODPUT_MAX, f"{capacity}: {by} carries up to {most:.2f} of the peak that was found"
                )
        load.judge_generator(self, [one.outcome for one in trials])

    def compare(self, told: str, found: list[Trial], udp: list[Trial]) -> None:
        """Expects nearly the same part of the bound as over UDP, if the bound is above `BOUND_MIN`."""
        if median(found, "bound") <= BOUND_MIN:
            print(f"        {told} is not compared: its bound is at most {BOUND_MIN:g} of the peak")
            return
        part = median(found, "of_bound")
        if udp:
            # A peak that was found too low must not raise what is expected over streams.
            by_udp = min(median(udp, "of_bound"), 1.0)
            self.expect(part >= OF_UDP_MIN * by_udp, f"{told} keeps {part:.2f} of its bound, UDP {by_udp:.2f}")


def dropped_us(offer: Callable[[Load, str], Outcome], peak_cps: float, served_us: float, round_: int) -> float:
    """Returns d, the shortest time for reading and dropping the INVITE of a call that was measured.

    The more such calls arrive, the less time each takes. So the rate is raised to nine tenths of the rate whose INVITEs
    take the whole capacity, but not beyond the highest multiple of the peak. At these rates all INVITEs are read.
    """
    rate_cps, least_us = peak_cps, inf
    for _ in range(DROPPING_RUNS_MAX):
        offered = Load(rate_cps, DROPPING_WARM_UP_S, DROPPING_MEASURED_S, round_)
        outcome = offer(offered, DROPPING)
        dropped_cps = outcome.offered_cps - outcome.goodput_cps
        if dropped_cps <= 0:
            raise RuntimeError(f"no call was dropped at {rate_cps:.0f} calls/s")
        took_us = 1e6 * outcome.usage.steady_cpu_s / outcome.usage.steady_s / dropped_cps
        least_us = min(took_us, least_us)
        next_cps = peak_cps * min(DROPPING_LOAD * served_us / least_us, max(MULTIPLES))
        if rate_cps >= 0.95 * next_cps:
            break
        rate_cps = next_cps
    return least_us


def median(trials: list[Trial], name: str) -> float:
    """Returns the median of a quantity over the rounds that have it."""
    values = [value for one in trials if (value := getattr(one, name)) is not None]
    return Spread.of(values).median
