"""Registrations over UDP and in three ways over TCP: beyond the limit the rate falls slowly

This is the measurement of paper 004, §4.4. A user registers by a REGISTER and gets a 200: over UDP (`udp`); over TCP
with a connection for each registration (`each`); on a connection that stays open, whose opening counts as part of the
response time (`opening`) or does not (`persistent`). The elements are a server that only echoes, as the least that a
server has to do, and Tidegate and Kamailio (fast allocator), both with transactions in front of the same registrar,
which is such an echo server over UDP.

`--part response`: 2,500 registrations/s, a whole core for each element. The table shows the response time, the CPU
time of a registration and the memory, beside the values of figure 4.1 of the paper.

`--part limit`: each element has a tenth of a core. The limit is the highest rate, found in steps of a factor of 1.25,
at which 99 % of the registrations are answered within 500 ms, and at most one in a hundred takes longer than 100 ms.
Then up to 3 times the limit is offered. Goodput counts registrations that are answered with 2xx within 500 ms. The
first four seconds do not count, because beyond the limit it takes up to three seconds until all connections are open.
The server of the paper lost nearly all registrations over TCP just beyond its limit, but few over UDP.

`--part queue`: the limit of the server of the paper was the length of its thread queue, beyond which it dropped tasks.
Here each queue of a Tidegate with a tenth of a core holds 256 to 16,384 messages (`queue_max`), over UDP and on open
connections. With `queue only` this is the only overload control (law `none`), as in the paper: Tidegate rejects a
registration if the queue is full. With `default` the law decides before the queue is full, so the length of the queue
should hardly matter.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from tidegate_bench import curve, peak, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.load import Load, Outcome, judge_generator
from tidegate_bench.overload import Variant
from tidegate_bench.record import Spread
from tidegate_bench.registrations import ELEMENTS, MODES, Registrations, offer, with_queue
from tidegate_bench.table import Column
from tidegate_bench.tidegate import DEFAULT_QUEUE_MAX

RATE = 2_500
SHARE = 0.1
MULTIPLES = (1.0, 1.25, 1.5, 2.0, 3.0)
WARM_UP_S = 1.2
WARM_UP_BEYOND_S = 4.0
# The mode `opening` opens 13,000 connections in both parts, which is the most that fits (see `registrations.fitted`).
MEASURED_S = 4.0
MEASURED_LIMIT_S = 2.5

# The limits on each queue of Tidegate, from the lowest that it accepts. With a tenth of a core, the messages of a full
# queue take from less than a tenth of a second to several seconds.
QUEUES = (256, 1_024, DEFAULT_QUEUE_MAX, 16_384)
QUEUE_MULTIPLES = (1.0, 2.0, 3.0)
# Figures 4.3 and 4.4 of the paper show these modes.
QUEUE_MODES = ("udp", "persistent")
# The overload control beside the limit on the queue, as tables of the configuration.
CONTROLS = {"queue only": Variant("none").tables(), "default": ""}

# Results of paper 004. The registrations/s that its server sustained with a thread queue of limited length:
PAPER_LIMITS = {"udp": 5_300, "each": 2_900, "opening": 3_300, "persistent": 4_100}
# The largest additional response time of the SIP server at 2,500/s, compared with the echo server.
PAPER_OVER_ECHO_MS = 1.2
# The additional share of the processor that the SIP server uses at 2,500/s, compared with the echo server, and the most
# memory in MB that it uses at its limit.
PAPER_CPU_OVER_ECHO = 0.18
PAPER_MEMORY_MB = 200
# The time in ms for opening a connection there, at the SIP server and at the echo server.
PAPER_OPENING_MS = {"tidegate": 0.4, "echo": 0.2}

# The part of the limit that Tidegate has to keep beyond it.
KEPT_MIN = {1.25: 0.8, 1.5: 0.7, 2.0: 0.6, 3.0: 0.4}
# The part of the limit that must be kept on connections that stay open, as a fraction of the part kept over UDP.
KEPT_OF_UDP_MIN = 0.9
# The limit is found to 6 %.
FOUND_TO = 0.94


@dataclass(frozen=True)
class Trial:
    """One load on a fresh element in one round."""

    round: int
    element: str
    mode: str
    multiple: float | None
    """The load as a multiple of the limit, or `None` at the fixed rate."""
    limit: float | None
    result: Registrations

    @property
    def outcome(self) -> Outcome:
        return self.result.outcome

    @property
    def kept(self) -> float:
        """Goodput as a part of the limit."""
        return self.outcome.goodput_cps / self.limit if self.limit else 0.0

    def row(self) -> dict[str, Any]:
        """Returns the row for a table of raw data."""
        own = {"round": self.round, "element": self.element, "mode": self.mode, "multiple": self.multiple}
        return {**own, "limit": self.limit, "kept": round(self.kept, 4), **self.result.row()}


@dataclass(frozen=True)
class QueueTrial(Trial):
    """One load on a Tidegate with a limit on its queues."""

    control: str
    """A key of `CONTROLS`."""
    queue_max: int

    def row(self) -> dict[str, Any]:
        """Returns the row for a table of raw data."""
        return {"control": self.control, "queue_max": self.queue_max, **super().row()}


RESPONSE = [
    Column("mean ms", lambda one: one.result.mean_ms, 2, "spread"),
    Column("p99 ms", lambda one: one.outcome.p99_ms, 2),
    Column("µs CPU each", lambda one: one.outcome.steady_us_per_call, 1, "spread"),
    Column("cores", lambda one: one.outcome.usage.element, 2),
    Column("connections", lambda one: one.outcome.opened),
    Column("MiB", lambda one: one.result.memory_mib, 0),
    Column("MiB before", lambda one: one.result.memory_before_mib, 0),
    Column("in time", lambda one: one.outcome.in_time, 3, "min"),
    Column("generator", lambda one: one.outcome.usage.caller + one.outcome.usage.callee, 2),
    Column("generator losses", lambda one: one.outcome.own_losses + one.outcome.usage.drops, 0, "sum"),
]
BEYOND = [
    Column("offered/s", lambda one: one.outcome.offered_cps),
    Column("in time", lambda one: one.outcome.in_time, 3, "spread"),
    Column("kept", lambda one: one.kept, 2, "spread"),
    *curve.OUTCOME,
    Column("connections", lambda one: one.outcome.opened),
    Column("MiB", lambda one: one.result.memory_mib, 0),
    Column("losses", lambda one: one.outcome.own_losses, 0, "sum"),
]
QUEUE = [*BEYOND, curve.ELEMENT_DROPS]


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parts = ("response", "limit", "queue", "all")
        parser.add_argument(
            "--part", choices=parts, default="all", help="part of the demonstration to run (default %(default)s)"
        )
        parser.add_argument(
            "--elements",
            default=",".join(ELEMENTS),
            help="programs to measure, separated by commas (default %(default)s)",
        )
        parser.add_argument(
            "--modes", default=",".join(MODES), help="modes to measure, separated by commas (default %(default)s)"
        )
        parser.add_argument(
            "--rate", type=float, default=RATE, help="registrations/s of the first part (default %(default)s)"
        )

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        for name, known in (("elements", ELEMENTS), ("modes", MODES)):
            chosen = getattr(options, name).split(",")
            if unknown := set(chosen) - set(known):
                raise SystemExit(f"--{name}: {', '.join(unknown)} is none of {', '.join(known)}")
            setattr(options, name, chosen)

    def run(self) -> Results:
        part = self.options.part
        for mode in self.options.modes:
            print(f"  {mode:12}{MODES[mode]}")
        response = self._response() if part in ("response", "all") else []
        limits, beyond = self._limit() if part in ("limit", "all") else ({}, [])
        queue = self._queue(limits) if part in ("queue", "all") else []
        return {
            "response": [one.row() for one in response],
            "limits": {" ".join(key): value for key, value in limits.items()},
            "beyond": [one.row() for one in beyond],
            "queue": [one.row() for one in queue],
        }

    def _response(self) -> list[Trial]:
        """Measures response times at a rate that all elements carry."""
        trials = []
        for round_, element, mode in product(self.rounds, self.options.elements, self.options.modes):
            load = Load(self.options.rate, WARM_UP_S, MEASURED_S, round_)
            # The generator has no slack, so that it adds nothing to the response times.
            result = offer(element, mode, load, self.profile, slack_ms=0)
            trials.append(Trial(round_, element, mode, None, None, result))
        table.show(trials, RESPONSE, line=lambda one: one.mode, block=lambda one: one.element)
        self.rows("response", [one.row() for one in trials])
        self._judge_response(trials)
        return trials

    def _judge_response(self, trials: list[Trial]) -> None:
        def median(element: str, mode: str, figure: Callable[[Trial], float]) -> float | None:
            found = [figure(one) for one in trials if (one.element, one.mode) == (element, mode)]
            return Spread.of(found).median if found else None

        def mean_ms(element: str, mode: str) -> float | None:
            return median(element, mode, lambda one: one.result.mean_ms)

        def cores(element: str, mode: str) -> float | None:
            return median(element, mode, lambda one: one.outcome.steady_us_per_call * one.outcome.offered_cps / 1e6)

        for element in self.options.elements:
            late = [one for one in trials if one.element == element and one.outcome.in_time < 1]
            if element != "kamailio":
                self.expect(not late, f"{element}: every registration is answered in time in {len(trials)} runs")
            opening, persistent = mean_ms(element, "opening"), mean_ms(element, "persistent")
            if opening is not None and persistent is not None and element in PAPER_OPENING_MS:
                took, there = opening - persistent, PAPER_OPENING_MS[element]
                self.expect(
                    took <= there, f"004 §4.4: {element}: a connection opens in {took:.2f} ms, in the paper in {there}"
                )
        for mode in self.options.modes:
            here, echo = mean_ms("tidegate", mode), mean_ms("echo", mode)
            if here is not None and echo is not None:
                over, there = here - echo, PAPER_OVER_ECHO_MS
                told = f"004 §4.4: {mode}: {over:.2f} ms longer than an echo, in the paper up to {there}"
                self.expect(over <= there, told)
            used, least = cores("tidegate", mode), cores("echo", mode)
            if used is not None and least is not None:
                told = f"004 §4.4: {mode}: {used - least:.2f} of a core more than an echo, in the paper up to"
                self.expect(used - least <= PAPER_CPU_OVER_ECHO, f"{told} {PAPER_CPU_OVER_ECHO}")
        # Delays count from the intended time. A late generator would make the echo slow.
        judge_generator(self, [one.outcome for one in trials])

    def _find(self, element: str, mode: str, found: list[float], round_: int) -> float:
        """Finds the highest rate that is carried, and appends it to those of the rounds before."""

        def measure(load: Load) -> Outcome:
            return offer(element, mode, load, self.profile, SHARE).outcome

        limit, _ = peak.peak(measure, SHARE, found[-1] if found else None, round_)
        found.append(limit)
        print(f"  round {round_}: {element} {mode}: {limit:.0f} registrations/s", flush=True)
        return limit

    def _limit(self) -> tuple[dict[tuple[str, str], list[float]], list[Trial]]:
        """Measures the highest rates that are carried, and the goodput beyond them."""
        limits: dict[tuple[str, str], list[float]] = {}
        trials = []
        # The echo server is not measured beyond its limit, because it is no proxy.
        for round_, element, mode in product(self.rounds, self.options.elements, self.options.modes):
            if element == "echo":
                continue
            found = limits.setdefault((element, mode), [])
            limit = self._find(element, mode, found, round_)
            for multiple in MULTIPLES:
                load = Load(multiple * limit, WARM_UP_BEYOND_S, MEASURED_LIMIT_S, round_)
                result = offer(element, mode, load, self.profile, SHARE)
                trials.append(Trial(round_, element, mode, multiple, limit, result))
        table.show(
            trials, BEYOND, line=lambda one: f"{one.multiple:5.2f}", block=lambda one: f"{one.element} {one.mode}"
        )
        self.rows("beyond", [one.row() for one in trials])
        rows = []
        for (element, mode), found in limits.items():
            udp = limits.get((element, "udp"))
            for round_, limit in zip(self.rounds, found, strict=True):
                of_udp = limit / udp[round_ - self.rounds.start] if udp else None
                paper = PAPER_LIMITS[mode]
                of_paper = paper / PAPER_LIMITS["udp"]
                row = {"round": round_, "element": element, "mode": mode, "limit": limit, "of_udp": of_udp}
                rows.append({**row, "paper": paper, "paper_of_udp": of_paper})
        columns = [Column("limit/s", "limit", 0, "spread"), Column("of UDP", "of_udp", 2)]
        columns += [Column("paper", "paper"), Column("paper: of UDP", "paper_of_udp", 2)]
        table.show(rows, columns, line=lambda row: row["mode"], block=lambda row: row["element"])
        self.rows("limits", rows)
        self._judge_limits(limits)
        self._judge_beyond(trials)
        return limits, trials

    def _queue(self, limits: dict[tuple[str, str], list[float]]) -> list[QueueTrial]:
        """Measures the goodput with several limits on the queues. `limits` has the rates that were carried in the
        rounds measured so far.
        """
        trials = []
        modes = [mode for mode in self.options.modes if mode in QUEUE_MODES and "tidegate" in self.options.elements]
        for round_, mode in product(self.rounds, modes):
            found, index = limits.setdefault(("tidegate", mode), []), round_ - self.rounds.start
            limit = found[index] if index < len(found) else self._find("tidegate", mode, found, round_)
            for control, queue_max, multiple in product(CONTROLS, QUEUES, QUEUE_MULTIPLES):
                load = Load(multiple * limit, WARM_UP_BEYOND_S, MEASURED_LIMIT_S, round_)
                result = offer(with_queue(queue_max, CONTROLS[control]), mode, load, self.profile, SHARE)
                trials.append(QueueTrial(round_, "tidegate", mode, multiple, limit, result, control, queue_max))
        table.show(
            trials,
            QUEUE,
            line=lambda one: f"{one.queue_max:6}",
            block=lambda one: f"{one.mode}, {one.multiple} times the limit, {one.control}",
        )
        self.rows("queue", [one.row() for one in trials])
        self._judge_queue(trials)
        return trials

    def _judge_queue(self, trials: list[QueueTrial]) -> None:
        """Expects the default overload control to keep most of the limit, whatever the length of the queues."""
        kept: dict[tuple[str, float, int], list[float]] = {}
        for one in trials:
            if one.control == "default" and one.multiple in KEPT_MIN:
                kept.setdefault((one.mode, one.multiple, one.queue_max), []).append(one.kept)
        for (mode, multiple, queue_max), found in kept.items():
            share = Spread.of(found).median
            told = f"{mode} at {multiple} times its limit, queues of {queue_max}: {share:.2f} of it is kept"
            self.expect(share >= KEPT_MIN[multiple], told)
        judge_generator(self, [one.outcome for one in trials])

    def _judge_limits(self, limits: dict[tuple[str, str], list[float]]) -> None:
        """Expects the order of the paper, and a higher limit than that of Kamailio."""
        median = {key: Spread.of(found).median for key, found in limits.items()}
        descending = ["udp", "persistent", "opening", "each"]
        for above, below in pairwise(mode for mode in descending if ("tidegate", mode) in median):
            more, less = median["tidegate", above], median["tidegate", below]
            self.expect(more >= FOUND_TO * less, f"004 §4.4: {above} {more:.0f}/s, {below} {less:.0f}/s")
        for mode in self.options.modes:
            ours, theirs = median.get(("tidegate", mode)), median.get(("kamailio", mode))
            if ours and theirs:
                self.expect(ours > theirs, f"{mode}: tidegate carries {ours / theirs:.2f} times what kamailio does")

    def _judge_beyond(self, trials: list[Trial]) -> None:
        """Expects Tidegate to keep most of its limit in each mode, and on open connections as much as over UDP."""

        def kept(mode: str, multiple: float) -> float | None:
            found = [t.kept for t in trials if (t.element, t.mode, t.multiple) == ("tidegate", mode, multiple)]
            return Spread.of(found).median if found else None

        for multiple, least in KEPT_MIN.items():
            for mode in self.options.modes:
                share = kept(mode, multiple)
                if share is not None:
                    self.expect(share >= least, f"{mode} at {multiple} times its limit: {share:.2f} of it is kept")
            udp, persistent = kept("udp", multiple), kept("persistent", multiple)
            if udp is not None and persistent is not None:
                told = f"at {multiple} times the limit, persistent keeps {persistent:.2f} of it, and UDP {udp:.2f}"
                self.expect(persistent >= KEPT_OF_UDP_MIN * min(udp, 1), told)
        at_limit = [t.result.memory_mib for t in trials if (t.element, t.multiple) == ("tidegate", 1.0)]
        if at_limit:
            used = max(at_limit) * 2**20 / 1e6
            told = f"004 §4.4: at its limit tidegate uses up to {used:.0f} MB, in the paper less than {PAPER_MEMORY_MB}"
            self.expect(used < PAPER_MEMORY_MB, told)
        judge_generator(self, [one.outcome for one in trials])
