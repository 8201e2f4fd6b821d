"""The balancer alone: calls per second of CPU time with 2 to 1,000 back ends, compared with Kamailio

Calls go from one caller through a balancer to one callee, which answers at as many addresses of 127.0.0.0/8 as there
are back ends. Each balancer has one worker. Tidegate runs with `tlwl`, with and without transactions, and with `rr`.
Kamailio's dispatcher runs without transactions with the algorithms 0 (hash over the Call-ID), 4 (round robin) and 10
(fewest calls), and with transactions with the algorithm 10 only. The balancers take turns in three rounds. CPU time is
that of all threads of the balancer, from /proc/PID/task/*/schedstat. The balancer of paper 003 (§VI.e) carried 5,500
calls/s with 5 + 5 machines.
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tidegate_bench import kamailio, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Process, Stage
from tidegate_bench.record import Spread
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.table import Column

COUNTS = (2, 10, 100, 1000)
PAPER_CPS = 5500
# Above this load the worker's core is full, and the cost of a call is no longer its usual cost.
FULL = 0.95

# A process, and its port.
Element = tuple[Process, int]


def start_tidegate(policy: str, mode: str, profile: str, stage: Stage, backends: list[str]) -> Element:
    edge = tidegate.start(stage, backends, profile, policy=policy, mode=mode)
    return edge.process, edge.port


def start_kamailio(algorithm: int, transactions: bool, stage: Stage, backends: list[str]) -> Element:
    started = kamailio.dispatch(stage, backends, algorithm, transactions=transactions)
    return started.process, started.port


def elements(profile: str) -> dict[str, Callable[[Stage, list[str]], Element]]:
    return {
        "tlwl, transactions": partial(start_tidegate, "tlwl", "transaction", profile),
        "tlwl": partial(start_tidegate, "tlwl", "stateless", profile),
        "rr": partial(start_tidegate, "rr", "stateless", profile),
        "kamailio 0": partial(start_kamailio, 0, False),
        "kamailio 4": partial(start_kamailio, 4, False),
        "kamailio 10": partial(start_kamailio, 10, False),
        "kamailio 10, tm": partial(start_kamailio, 10, True),
    }


class Run(NamedTuple):
    """One run of a balancer with a number of back ends."""

    element: str
    backends: int
    round: int
    calls: int
    failed: int
    repeated: int
    cpu_us_per_call: float
    occupancy: float

    @property
    def per_cpu_s(self) -> float:
        """Calls per second of CPU time."""
        return 1e6 / self.cpu_us_per_call if self.cpu_us_per_call else 0.0


def addresses(count: int, port: int) -> list[str]:
    """Returns this number of addresses of the loopback network, without 127.0.0.1."""
    return [f"127.1.{index // 250}.{index % 250 + 1}:{port}" for index in range(count)]


def measure(
    name: str,
    start: Callable[[Stage, list[str]], Element],
    count: int,
    round_: int,
    rate: int,
    seconds: int,
    profile: str,
) -> Run:
    with Stage() as stage:
        callee = tidegate.callee(stage, "uas", profile, ["--all-addresses"])
        element, port = start(stage, addresses(count, callee.port))
        before_ns = element.cpu_ns()
        caller = tidegate.caller(
            stage, "uac", f"{LOCALHOST}:{port}", rate_cps=rate, calls=rate * seconds, profile=profile, seed=round_
        )
        if not caller.process.wait(seconds + 60):
            sys.exit(f"the caller did not end:\n{caller.process.tail()}")
        used_ns = element.cpu_ns() - before_ns
        for process in (element, callee.process):
            process.require_running()
        calls = caller.calls()
        return Run(
            name,
            count,
            round_,
            calls.created,
            calls.failed,
            calls.retransmissions,
            used_ns / 1e3 / max(1, calls.successful),
            used_ns / 1e9 / seconds,
        )


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rate", type=int, default=1000, help="offered calls/s (default %(default)s)")
        parser.add_argument("--seconds", type=int, default=6, help="duration of a run in s (default %(default)s)")
        parser.add_argument(
            "--counts",
            default=",".join(map(str, COUNTS)),
            help="numbers of back ends, separated by commas (default %(default)s)",
        )
        parser.add_argument("--elements", help="names of the programs to measure, separated by `;` (default: all)")

    def run(self) -> Results:
        counts = [int(count) for count in self.options.counts.split(",")]
        known = elements(self.profile)
        names = self.options.elements.split(";") if self.options.elements else list(known)
        runs = []
        for round_ in self.rounds:
            for count in counts:
                for name in names:
                    run = measure(
                        name, known[name], count, round_, self.options.rate, self.options.seconds, self.profile
                    )
                    runs.append(run)
                    print(
                        f"  round {round_}  {count:>5} back ends  {name:<20}"
                        f"{run.cpu_us_per_call:>8.1f} µs a call, {run.failed} failed, "
                        f"{run.repeated} repeated, {run.occupancy:.2f} of a core",
                        flush=True,
                    )
        column = Column("calls per CPU-second", lambda run: run.per_cpu_s, 0, "spread")
        table.show(runs, [column], line=lambda run: run.element, block=lambda run: f"{run.backends} back ends")
        self.expect(not any(run.failed for run in runs), "no call failed")
        self.expect(all(run.occupancy < FULL for run in runs), "no worker's core was full")

        def median(name: str, count: int) -> float:
            return Spread.of([r.per_cpu_s for r in runs if (r.element, r.backends) == (name, count)]).median

        for name in names:
            if name.startswith("kamailio"):
                continue
            alone = median(name, counts[0])
            # The value of the paper was measured on another machine, so only the ratios beside it can be compared.
            seen = "reproduced" if alone >= PAPER_CPS else "partly"
            self.expect(
                alone >= PAPER_CPS / 2,
                f"003 §VI.e: {seen}: {name}: {alone:.0f} calls per CPU-second, 5,500 in the paper",
            )
            slowed = alone / median(name, counts[-1])
            self.expect(slowed <= 1.5, f"{name}: a call costs {slowed:.2f} times as much with {counts[-1]} back ends")
            for other in (n for n in names if n.startswith("kamailio")):
                least = min(median(name, count) / median(other, count) for count in counts)
                self.expect(least > 1, f"{name} carries at least {least:.2f} times as many calls as {other}")
        self.rows("runs", [{**run._asdict(), "per_cpu_s": run.per_cpu_s} for run in runs])
        return {}
