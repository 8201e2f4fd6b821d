"""CPU per call of Tidegate, of a bare batching relay and of Kamailio, under the same load.

Each run is: caller -> element -> callee, on loopback, with fresh processes. The elements take turns (A B C A B C ...),
so that a change of the machine's speed affects all of them, and ratios are taken within a round. The elements are:

  transaction  Tidegate with its defaults, which include transactions
  stateless    Tidegate without transactions
  relay        datagrams in, datagrams out: the least that any element can do
  forward      Kamailio with forward(), without transactions; one worker
  t_relay      Kamailio with t_relay(), with transactions; one worker

Two parts:

  rate        one fixed rate of calls
  saturation  the rate is raised until calls fail, or until the element, the generator or
              the machine is full, which the output states

A call is INVITE, 180, 200, ACK, BYE, 200: six datagrams in and six out, or seven out with transactions (the 100). CPU
time is that of all threads of the element's processes (/proc/PID/task/*/schedstat) and of nothing else.
"""

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Protocol

from tidegate_bench import sipp, table, tidegate
from tidegate_bench.elements import BASELINE, elements
from tidegate_bench.process import NS, Process, Stage
from tidegate_bench.record import Record
from tidegate_bench.sipp import Calls
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.table import Column

# From this load on a core counts as full, because the scheduler takes the rest.
FULL = 0.95
CORES = len(os.sched_getaffinity(0))
# An element keeps up if the caller reaches the part `REACHED` of the asked rate, with at most `REPEATED_MAX`
# retransmissions per call.
REACHED = 0.9
REPEATED_MAX = 0.01
# If other processes take more than this of a core, absolute figures are doubtful.
OTHERS_MAX = 0.2


ELEMENTS = ("transaction", "stateless", "relay", "forward", "t_relay")


class Callee(Protocol):
    """The interface of a callee."""

    @property
    def process(self) -> Process: ...

    @property
    def port(self) -> int: ...


class Caller(Callee, Protocol):
    """The interface of a caller, which counts the outcomes of its calls."""

    def calls(self) -> Calls: ...


@dataclass(frozen=True)
class Generator:
    """A caller and a callee."""

    callee: Callable[[Stage], Callee]
    caller: Callable[[Stage, str, int, int], Caller]
    """Starts the caller with the target, the rate in calls/s and the number of calls."""


GENERATORS = {
    "sipp": Generator(
        callee=lambda stage: sipp.callee(stage, "uas"),
        caller=lambda stage, target, rate, calls: sipp.caller(stage, "uac", target, rate_cps=rate, calls=calls),
    ),
    "tidegate": Generator(
        callee=lambda stage: tidegate.callee(stage, "uas", "release"),
        # Otherwise an element that does not record its route would get no ACK and no BYE.
        caller=lambda stage, target, rate, calls: tidegate.caller(
            stage, "uac", target, rate_cps=rate, calls=calls, follow_routes=False, profile="release"
        ),
    ),
}


@dataclass(frozen=True)
class Run:
    """One element under one load. Occupancies are in cores."""

    part: str
    round: int
    element: str
    rate_asked_cps: int
    rate_reached_cps: float
    calls: int
    """The number of calls that the caller had to make."""
    successful: int
    failed: int
    retransmissions: int
    element_us_per_call: float
    uac_us_per_call: float
    uas_us_per_call: float
    element_busiest_thread: float
    generator_busiest_thread: float
    machine: float
    others: float
    """The part of `machine` that this script and other programs used."""
    element_drops: int
    generator_drops: int

    def carried(self) -> bool:
        """True if every call was made and succeeded, and the element kept up.

        Calls that complete only after repetitions would fail in a longer run.
        """
        kept_up = self.rate_reached_cps >= REACHED * self.rate_asked_cps
        return kept_up and self.successful == self.calls and self.retransmissions <= REPEATED_MAX * self.calls

    def limit(self) -> str:
        """The reason why the rate cannot be higher, or empty if there is none yet."""
        if self.element_busiest_thread >= FULL:
            return f"{self.element}'s core is full"
        if self.generator_busiest_thread >= FULL:
            return "the generator's core is full"
        if self.machine - self.others >= FULL * CORES:
            return "caller, element and callee fill the machine"
        if self.failed or self.successful < self.calls:
            return "calls failed or were not made"
        if self.retransmissions > REPEATED_MAX * self.calls:
            return "callers repeated messages"
        if self.rate_reached_cps < REACHED * self.rate_asked_cps:
            return "the generator fell behind"
        return ""


class Snapshot:
    """CPU time of each process and thread, and of the machine, at one moment."""

    def __init__(self, element: Process, uac: Process, uas: Process) -> None:
        self.at = time.monotonic()
        self.threads = [process.cpu_ns_by_thread() for process in (element, uac, uas)]
        self.element_ns = element.cpu_ns()
        self.uas_ns = uas.cpu_ns()
        self.own_s = sum(sum(threads.values()) for threads in self.threads) / NS
        self.busy_s = self.at * CORES - float(Path("/proc/uptime").read_text().split()[1])
        for process in (element, uac, uas):
            process.drops()

    def busiest_since(self, start: "Snapshot", *which: int) -> float:
        """Returns the occupancy of the busiest thread of these processes since `start`."""
        elapsed_ns = (self.at - start.at) * NS
        return max(
            (used - start.threads[index].get(thread, 0)) / elapsed_ns
            for index in which
            for thread, used in self.threads[index].items()
        )


def measure(part: str, round_: int, name: str, generator: Generator, rate: int, calls: int) -> Run:
    with Stage() as stage:
        callee = generator.callee(stage)
        element, port = elements()[name](stage, callee.port)
        caller = generator.caller(stage, f"{LOCALHOST}:{port}", rate, calls)

        start = last = Snapshot(element, caller.process, callee.process)
        patience = time.monotonic() + calls / rate + 120
        while caller.process.running():
            # At the end the caller waits for its last calls. Whether a core is full is judged by the time in which it
            # offered calls.
            offering = time.monotonic() - start.at < calls / rate
            if offering:
                last = Snapshot(element, caller.process, callee.process)
            caller.process.drops()
            if time.monotonic() > patience:
                sys.exit(f"the caller did not end:\n{caller.process.tail()}")
            time.sleep(0.2 if offering else 0.02)
        end = Snapshot(element, caller.process, callee.process)
        if not element.running():
            sys.exit(f"{name} ended in the middle of the run:\n{element.tail()}")

        counted = caller.calls()
        per_call = 1000 * max(counted.successful, 1)
        elapsed_s = last.at - start.at
        machine = (last.busy_s - start.busy_s) / elapsed_s
        own = (last.own_s - start.own_s) / elapsed_s
        return Run(
            part=part,
            round=round_,
            element=name,
            rate_asked_cps=rate,
            rate_reached_cps=round(counted.created / max(end.at - start.at, calls / rate), 1),
            calls=calls,
            successful=counted.successful,
            failed=counted.failed,
            retransmissions=counted.retransmissions,
            element_us_per_call=round((end.element_ns - start.element_ns) / per_call, 2),
            uac_us_per_call=round(caller.process.cpu_ns() / per_call, 2),
            uas_us_per_call=round((end.uas_ns - start.uas_ns) / per_call, 2),
            element_busiest_thread=round(last.busiest_since(start, 0), 3),
            generator_busiest_thread=round(last.busiest_since(start, 1, 2), 3),
            machine=round(machine, 3),
            others=round(max(0.0, machine - own), 3),
            element_drops=element.drops(),
            generator_drops=caller.process.drops() + callee.process.drops(),
        )


def show(runs: list[Run], all_runs: list[Run]) -> None:
    """Prints for each element its rate, CPU time per call, ratio to the baseline, and the other figures of its runs.

    The ratio is that of the CPU times. The baseline, from `all_runs`, had the same rate in the same round.
    """
    baseline = {(r.round, r.rate_asked_cps): r.element_us_per_call for r in all_runs if r.element == BASELINE}

    def times(run: Run) -> float | None:
        base = baseline.get((run.round, run.rate_asked_cps))
        return run.element_us_per_call / base if base else None

    columns = [
        Column("calls/s carried", lambda run: run.rate_asked_cps, 0, "spread"),
        Column("CPU µs a call", lambda run: run.element_us_per_call, 1, "spread"),
        Column(f"times the {BASELINE}", times, 2, "spread"),
        Column("failed", lambda run: run.failed, 0, "sum"),
        Column("retrans", lambda run: run.retransmissions, 0, "sum"),
        Column("uac", lambda run: run.uac_us_per_call, 1),
        Column("uas", lambda run: run.uas_us_per_call, 1),
        Column("busiest: element", lambda run: run.element_busiest_thread, 2),
        Column("generator", lambda run: run.generator_busiest_thread, 2),
        Column("machine", lambda run: run.machine, 2),
        Column("others", lambda run: run.others, 2, "max"),
        Column("drops: element", lambda run: run.element_drops, 0, "sum"),
        Column("generator", lambda run: run.generator_drops, 0, "sum"),
    ]
    table.show(runs, columns, line=lambda run: run.element)
    others = max((run.others for run in runs), default=0.0)
    if others > OTHERS_MAX:
        print(f"  (other processes used the machine: others took up to {others:.2f} cores)")


def at_rate(names: list[str], generator: Generator, rate: int, seconds: int, rounds: int) -> list[Run]:
    print(f"\nat {rate:,} calls/s, {seconds} s a run; CPU in µs a call, occupancy in cores", flush=True)
    turns = product(range(1, rounds + 1), names)
    return [measure("rate", round_, name, generator, rate, rate * seconds) for round_, name in turns]


def at_saturation(
    names: list[str], generator: Generator, rate: int, step: float, seconds: int, rounds: int
) -> tuple[list[Run], list[Run]]:
    """Returns for each element and round the run at the highest rate that it carried, and all runs."""
    best, runs = [], []
    print(f"\nat saturation: from {rate:,} calls/s up, times {step}, {seconds} s a run", flush=True)
    for round_ in range(1, rounds + 1):
        carried: dict[str, Run] = {}
        climbing, asked = list(names), rate
        while climbing:
            # The elements take turns at each rate, so that each rate has a baseline.
            for name in list(climbing):
                run = measure("saturation", round_, name, generator, asked, asked * seconds)
                runs.append(run)
                if run.carried():
                    carried[name] = run
                if run.limit():
                    print(f"  round {round_}, {name}: {run.limit()} at {asked:,} calls/s", flush=True)
                    climbing.remove(name)
            asked = int(asked * step)
        best += [carried[name] for name in names if name in carried]
    return best, runs


def judge_rate(record: Record, runs: list[Run], rate: int) -> None:
    missed = [f"{run.element} in round {run.round}" for run in runs if not run.carried()]
    but = f", but not {', '.join(missed)}" if missed else ""
    record.expect(not missed, f"at {rate:,} calls/s every run carried all its calls{but}")


def judge_saturation(record: Record, best: list[Run], names: list[str], rounds: int) -> None:
    carried = {(run.round, run.element) for run in best}
    turns = product(range(1, rounds + 1), names)
    missed = [f"{name} in round {round_}" for round_, name in turns if (round_, name) not in carried]
    but = f", but not {', '.join(missed)}" if missed else ""
    record.expect(not missed, f"every element carried at least the first rate{but}")


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--elements", default=",".join(ELEMENTS), help="programs to compare, separated by commas (default %(default)s)"
    )
    parser.add_argument(
        "--generator", choices=GENERATORS, default="sipp", help="generator at the fixed rate (default %(default)s)"
    )
    parser.add_argument(
        "--saturation-generator",
        choices=GENERATORS,
        default="tidegate",
        help="generator at saturation (default %(default)s; SIPp itself fails calls from some 5,000/s on)",
    )
    parser.add_argument(
        "--parts", default="rate,saturation", help="parts to run, separated by commas (default %(default)s)"
    )
    parser.add_argument("--rate", type=int, default=2000, help="fixed rate in calls/s (default %(default)s)")
    parser.add_argument(
        "--seconds", type=int, default=10, help="seconds of a run at the fixed rate (default %(default)s)"
    )
    parser.add_argument(
        "--step-seconds", type=int, default=3, help="seconds of a step towards saturation (default %(default)s)"
    )
    parser.add_argument(
        "--step", type=float, default=1.3, help="factor of the rate from one step to the next (default %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of rounds; a spread needs at least 3 (default %(default)s)"
    )
    options = parser.parse_args(arguments)
    options.elements = options.elements.split(",")
    for name in options.elements:
        if name not in ELEMENTS:
            parser.error(f"no element {name}: there are {', '.join(ELEMENTS)}")
    options.parts = options.parts.split(",")
    for part in options.parts:
        if part not in ("rate", "saturation"):
            parser.error(f"no part {part}: there are rate and saturation")
    if options.step <= 1 or min(options.rate, options.seconds, options.step_seconds, options.rounds) < 1:
        parser.error("rate, seconds and rounds must be at least 1, the step above 1")
    return options


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    record = Record("bench", "compare")
    runs: list[Run] = []
    if "rate" in options.parts:
        generator = GENERATORS[options.generator]
        runs = at_rate(options.elements, generator, options.rate, options.seconds, options.rounds)
        show(runs, runs)
        judge_rate(record, runs, options.rate)
    if "saturation" in options.parts:
        generator = GENERATORS[options.saturation_generator]
        climb = (options.rate, options.step, options.step_seconds, options.rounds)
        best, climbed = at_saturation(options.elements, generator, *climb)
        show(best, climbed)
        judge_saturation(record, best, options.elements, options.rounds)
        runs += climbed
    rows = record.rows("runs", map(dataclasses.asdict, runs))
    return record.finish(options=vars(options), runs=rows)
