"""Rejecting a call at saturation costs at most 1.3 times the CPU time of its three bare datagrams

r is the CPU time of Tidegate for a call that it rejects: INVITE in, 503 out, ACK in. It is compared with that of
examples/reject, which answers every INVITE with a fixed text under the same driver and parses nothing. Its CPU time is
the kernel's cost of the same datagrams. Both get the same load in turn, at rising rates until one of them or the
generator is full. The ratio is taken within a round, at the highest rate that both carried in every round. s is the CPU
time of a served call, at the highest rate carried without overload control. If perf is installed, it shows where
Tidegate spends its time. Uses release builds.
"""

import argparse
import shutil
import subprocess
from dataclasses import asdict, dataclass

from tidegate_bench import peak, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.flood import Flood
from tidegate_bench.load import trial
from tidegate_bench.overload import REJECTING, Variant
from tidegate_bench.process import NS, Process, Stage
from tidegate_bench.record import Record, Spread
from tidegate_bench.sockets import LOCALHOST, free_port

RATIO_MAX = 1.3
START_CPS = 20_000
STEP = 1.4
# From this load on a core counts as full, because the scheduler takes the rest.
FULL = 0.95
# The first few calls are admitted, until the law has measured how busy the processor is.
REJECTED_MIN = 0.995
ELEMENTS = ("tidegate", "bare")
SERVING = Variant("none", "arrival", "class")
# The symbols that the profile lists.
SYMBOLS = 25


@dataclass(frozen=True)
class Run:
    """One element under one rate of unwanted calls."""

    round: int
    element: str
    rate_cps: int
    calls: int
    rejected: int
    us_per_call: float
    """r: CPU time of the element for a rejected call, in µs."""
    element_cpu: float
    generator_cpu: float
    behind_s: float
    generator_drops: int
    element_drops: int

    def limit(self) -> str:
        """The reason why no higher rate is carried, or empty if this rate is carried."""
        if self.generator_cpu >= FULL or self.behind_s > 0.05:
            return "the generator is full"
        if self.element_cpu >= FULL:
            return "the element's core is full"
        if self.generator_drops or self.element_drops or self.rejected < REJECTED_MIN * self.calls:
            return "datagrams were lost"
        return ""


def start(stage: Stage, element: str, profile: str) -> tuple[Process, str]:
    """Starts the element. Returns its process and its address."""
    if element == "bare":
        port = free_port()
        command = [tidegate.built("examples/reject", profile), "--listen", f"{LOCALHOST}:{port}"]
        return stage.serve("reject", command, port), f"{LOCALHOST}:{port}"
    callee = tidegate.callee(stage, "uas", profile)
    edge = tidegate.start(stage, [callee.port], profile, tables=REJECTING.tables())
    return edge.process, edge.address


def reject(round_: int, element: str, rate: int, seconds: float, profile: str) -> Run:
    with Stage() as stage:
        process, address = start(stage, element, profile)
        before_ns = process.cpu_ns()
        told = Flood(stage, address, rate, seconds, profile).finish(seconds + 10)
        used_s = (process.cpu_ns() - before_ns) / NS
        return Run(
            round=round_,
            element=element,
            rate_cps=rate,
            calls=int(told["invites"]),
            rejected=int(told["rejected"]),
            us_per_call=1e6 * used_s / max(told["rejected"], 1),
            element_cpu=used_s / seconds,
            generator_cpu=told["cpu_s"] / seconds,
            behind_s=told["behind_s"],
            generator_drops=int(told["socket_drops"] + told["unsent"]),
            element_drops=process.drops(),
        )


def climb(round_: int, seconds: float, profile: str) -> list[Run]:
    """Runs both elements at each rate, until one of them cannot carry it."""
    runs: list[Run] = []
    rate, limits = START_CPS, [""]
    while not any(limits):
        turn = [reject(round_, element, rate, seconds, profile) for element in ELEMENTS]
        limits = [run.limit() for run in turn]
        for run, limit in zip(turn, limits, strict=True):
            print(
                f"{round_:5} {run.element:9} {run.rate_cps:9,} {run.us_per_call:7.2f} "
                f"{run.element_cpu:9.2f} {run.generator_cpu:9.2f} {run.element_drops:9} "
                f"{run.generator_drops:9}  {limit}",
                flush=True,
            )
        runs += turn
        rate = int(rate * STEP)
    return runs


def serve(round_: int, profile: str) -> tuple[float, float]:
    """Returns the highest rate served, and s at this rate in µs."""

    rate, outcome = peak.climb(lambda load: trial(load, SERVING, profile)[0], 5000.0, seed=100 * round_)
    return rate, outcome.element_us_per_call


def explain(record: Record, rate: int, profile: str) -> None:
    """Samples where Tidegate spends its time while it rejects calls, and prints the profile."""
    if not shutil.which("perf"):
        print("no profile: perf is not installed (Debian: linux-perf)")
        return
    with Stage() as stage:
        process, address = start(stage, "tidegate", profile)
        Flood(stage, address, rate, 4.0, profile)
        data = stage.directory / "perf.data"
        sample = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-o", str(data)]
        sample += ["-p", str(process.pid), "--", "sleep", "3"]
        if subprocess.run(sample, capture_output=True, check=False).returncode != 0:
            print("no profile: perf may not sample on this machine")
            return
        for keys, file in (("dso", "perf-objects.txt"), ("dso,symbol", "perf-symbols.txt")):
            report = ["perf", "report", "-i", str(data), "--stdio", "-q"]
            report += ["--fields", f"overhead,{keys}"]
            told = subprocess.run(report, capture_output=True, text=True, check=False).stdout
            (record.directory / file).write_text(told)
            lines = [line.rstrip() for line in told.splitlines() if line.strip()]
            print("\n".join(["", f"where the time r is spent, by {keys}:", *lines[:SYMBOLS]]), flush=True)


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--seconds", type=float, default=3.0, help="seconds of each offered rate (default %(default)s)"
        )

    def run(self) -> Results:
        print(f"{'':33}{'cores used:':20}datagrams lost:")
        print("round element     calls/s   r, µs   element generator   element generator")
        runs: list[Run] = []
        served: list[tuple[float, float]] = []
        for round_ in self.rounds:
            runs += climb(round_, self.options.seconds, self.profile)
            served.append(serve(round_, self.profile))
            print(f"      served up to {served[-1][0]:,.0f} calls/s, s {served[-1][1]:.2f} µs")
        self.rows("runs", [asdict(run) for run in runs])

        missed = {run.rate_cps for run in runs if run.limit()}
        carried = [
            rate
            for rate in {run.rate_cps for run in runs} - missed
            if sum(run.rate_cps == rate for run in runs) == len(ELEMENTS) * len(self.rounds)
        ]
        if not self.expect(bool(carried), "there is a rate that both elements carried in every round"):
            return {}
        rate = max(carried)
        costs = {
            element: [run.us_per_call for run in runs if (run.element, run.rate_cps) == (element, rate)]
            for element in ELEMENTS
        }
        ratios = [own / bare for own, bare in zip(costs["tidegate"], costs["bare"], strict=True)]
        of_served = [own / s for own, (_, s) in zip(costs["tidegate"], served, strict=True)]
        print(f"\nat {rate:,} rejected calls/s           min     median        max")
        print(f"  r, µs                  {Spread.of(costs['tidegate']).text(2)}")
        print(f"  bare datagrams, µs     {Spread.of(costs['bare']).text(2)}")
        print(f"  r over bare            {Spread.of(ratios).text(2)}")
        print(f"  s, µs                  {Spread.of([s for _, s in served]).text(2)}")
        print(f"  r/s                    {Spread.of(of_served).text(3)}")
        explain(self, rate, self.profile)
        median = Spread.of(ratios).median
        self.expect(median <= RATIO_MAX, f"r is {median:.2f} times the cost of the bare datagrams (≤ {RATIO_MAX})")
        return {
            "runs": [asdict(run) for run in runs],
            "served": [{"rate_cps": rate, "us_per_call": s} for rate, s in served],
            "ratios": ratios,
            "r_over_s": of_served,
        }
