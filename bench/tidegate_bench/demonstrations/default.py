"""A configuration with only a listener and a back end is protected from overload

Each element gets a fifth of a core, 1 ms of every 5. Nothing is emulated. `default` is a Tidegate with a configuration
of two lines. `none` has a third line, `overload = { law = "none" }`. Kamailio has transactions (`t_relay()`), the fast
allocator and its default socket buffer, with which it does better than with a large one. It runs without overload
control (`kamailio`), and with two algorithms of its module ratelimit (`feedback` and `taildrop`). FEEDBACK aims at 90
% of the quota, and is told how much of the quota is used. TAILDROP admits 90 % of Kamailio's peak.

The peak of a program is the highest rate, found in steps of a factor of 1.25, at which the program without overload
control sets up 99 % of the calls within 500 ms, and at most one call in a hundred takes longer than 100 ms. Then 0.5
to 10 times this peak is offered. Goodput counts calls that are set up within 500 ms.

The speed of a shared machine changes from second to second, and the peak is found in seconds in which the machine is
fast. So a second Tidegate without overload control, the reference, serves 2,000 calls/s beside each load. At the start
and at the end of each round, the program without overload control gets 0.7 of its peak, or less if it does not carry
that. This shows how many times the CPU time of the reference's calls its own calls take. The capacity at the time of a
load is the share of the core, divided by this factor and by the CPU time of the reference's calls during the load. At
higher loads a program serves more messages at once, and a call costs a little less. So a program can carry a little
more than this capacity.

At half the peak and at the peak, `default` may set up 1 % fewer calls than `none`, in the median of the rounds. If the
rounds of `none` differ by more than 1 %, this difference is allowed instead, but at most 3 %. Beyond the peak,
`default` must keep at least .95 of the capacity at 2 times the peak, .85 at 4, .8 at 6, and .75 at 8 and 10 times.

With `--share 1` a program has a whole core, or more if it has more threads. With `--generator sipp` the caller is
SIPp, which offers as many calls as it can. The column `offered` shows how many these were.
"""

import argparse
import contextlib
import itertools
import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from tidegate_bench import curve, kamailio, load, peak, sipp_load, table, tidegate
from tidegate_bench.curve import AtPeak, CurveDemonstration
from tidegate_bench.demonstration import Results
from tidegate_bench.kamailio import DEFAULT_BUFFER_BYTES, LoadTeller
from tidegate_bench.load import Load, Outcome
from tidegate_bench.process import Process, Stage
from tidegate_bench.quota import SHARE, Quota
from tidegate_bench.record import Spread
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.table import Column

MULTIPLES = (0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0)
# The least goodput at each multiple of the peak, as a part of the capacity at this time.
KEPT_MIN = {2.0: 0.95, 4.0: 0.85, 6.0: 0.8, 8.0: 0.75, 10.0: 0.75}
DIFFERENCE_MAX = 0.01
# The greatest difference between the rounds of `none` that is allowed instead. At the peak, `none` may collapse in one
# round. Its rounds then differ by nearly 1, which must not excuse the default in the other rounds.
NOISE_MAX = 0.03
# The load that shows the CPU time of a call without overload, as a part of the peak. If the machine has become so slow
# that this is an overload, this part of the load is tried, and so on.
LIGHT = 0.7
LIGHTER_MAX = 4
# The load of the reference.
REFERENCE_CPS = 2_000.0
# The target of Kamailio's control, as a part of the quota or of the peak.
TARGET = 0.9

CONFIGURATION = """\
listen = [{{ transport = "udp", address = "{address}" }}]
pool = [{{ name = "app", policy = "rr", backend = [{{ uri = "sip:{backend}" }}] }}]
"""
# The additional keys of each variant.
TIDEGATE = {"none": 'overload = { law = "none" }\n', "default": ""}
# The reference has no admin interface, because the measured program has the port.
KEYS = TIDEGATE | {"reference": TIDEGATE["none"] + 'admin = { address = "off" }\n'}
# The pipe of Kamailio's module ratelimit, and the seconds between the ticks of the module. FEEDBACK must not read the
# load itself at a tick (see LoadTeller), so its first tick is after an hour.
KAMAILIO = {
    "kamailio": None,
    "feedback": (f"0:FEEDBACK:{100 * TARGET:.0f}", 3600),
    "taildrop": ("0:TAILDROP:{limit:.0f}", 1),
}
VARIANTS = (*TIDEGATE, *KAMAILIO)
# The runs that conditions use: the variant, and whether the load is above twice the peak.
DECIDE = (("default", True), ("default", False), ("none", False))
OFFERS: dict[str, load.Offer] = {"tidegate": load.offer, "sipp": sipp_load.offer}


def unprotected(variant: str) -> str:
    """Returns the variant without overload control of the same program. Its peak counts for both variants."""
    return "none" if variant in TIDEGATE else "kamailio"


@contextlib.contextmanager
def started(
    stage: Stage, quota: Quota | None, variant: str, backend_port: int, peak_cps: float, profile: str, share: float
) -> Iterator[tuple[Process, str]]:
    """Starts a program under the quota. Returns it and its address."""
    if variant in KEYS:
        port = free_port()
        file = stage.directory / "tidegate.toml"
        lines = CONFIGURATION.format(address=f"{LOCALHOST}:{port}", backend=f"{LOCALHOST}:{backend_port}")
        file.write_text(lines + KEYS[variant])
        os.environ["STATE_DIRECTORY"] = str(stage.directory)
        command = [tidegate.built("tidegate", profile), "run", "--config", str(file)]
        yield stage.serve("tidegate", command, port, quota=quota), f"{LOCALHOST}:{port}"
        return
    control = KAMAILIO[variant]
    if control is None:
        bare = kamailio.run(stage, backend_port, transactions=True, buffer_bytes=DEFAULT_BUFFER_BYTES, quota=quota)
        yield bare.process, bare.address
        return
    pipe, interval = control
    commands = stage.directory / "commands"
    limited = kamailio.run(
        stage,
        backend_port,
        configuration="kamailio-ratelimit.cfg",
        transactions=True,
        buffer_bytes=DEFAULT_BUFFER_BYTES,
        defines={
            "PIPE": f'"{pipe.format(limit=TARGET * peak_cps)}"',
            "INTERVAL": f"{interval}",
            "RPC": f'"{commands}"',
        },
        quota=quota,
    )
    with LoadTeller(limited.process, commands, share):
        yield limited.process, limited.address


def measure(
    variant: str, offered: Load, profile: str, share: float, peak_cps: float = 0, offer: load.Offer = load.offer
) -> Outcome:
    """Measures one load on a fresh program with this share of a core, in front of a fresh callee."""
    with Quota(share) if share < 1 else contextlib.nullcontext() as quota, Stage() as stage:
        callee = tidegate.callee(stage, "uas", profile)
        with started(stage, quota, variant, callee.port, peak_cps, profile, share) as (element, address):
            outcome = offer(stage, element, address, callee, offered, profile)
        stage.kill()
        return outcome


def compare(
    variant: str, offered: Load, profile: str, share: float, peak_cps: float = 0, offer: load.Offer = load.offer
) -> tuple[Outcome, float]:
    """Measures one load as `measure` does, and at the same time the reference.

    Returns the outcome and the CPU time in µs of a call of the reference.
    """
    light = replace(offered, rate_cps=REFERENCE_CPS)
    with Stage() as stage, ThreadPoolExecutor() as threads:
        callee = tidegate.callee(stage, "uas", profile)
        with started(stage, None, "reference", callee.port, 0, profile, share) as (reference, address):
            beside: list[Future[Outcome]] = []

            def both(*args: Any) -> Outcome:
                # Both loads begin at the same time.
                beside.append(threads.submit(load.offer, stage, reference, address, callee, light, profile))
                return offer(*args)

            outcome = measure(variant, offered, profile, share, peak_cps, both)
            us_per_call = beside[0].result().steady_us_per_call
        stage.kill()
    return outcome, us_per_call


@dataclass(frozen=True)
class Attempt:
    """The last attempt to measure a load."""

    outcome: Outcome
    reference_us: float | None
    """The CPU time in µs of a call of the reference. `None` without a reference."""
    number: int
    """How often the load was offered, with this attempt."""


@dataclass(frozen=True)
class Trial(AtPeak):
    """One load on one variant, in one round."""

    variant: str
    capacity_cps: float | None
    """The capacity of the program without control, at the time of the run. `None` with a whole core."""
    attempts: int = 1
    """How often the load was offered. Only the last time counts."""

    @property
    def of_capacity(self) -> float | None:
        """Goodput as a part of the capacity."""
        return self.outcome.goodput_cps / self.capacity_cps if self.capacity_cps else None


COLUMNS = [
    Column("offered", lambda one: one.offered, 2),
    Column("goodput/s", lambda one: one.outcome.goodput_cps),
    Column("goodput/peak", lambda one: one.goodput, 3),
    Column("goodput/capacity", lambda one: one.of_capacity, 3, "spread"),
    *curve.OUTCOME,
    Column("attempts", lambda one: one.attempts, 0, "sum"),
]


class Show(CurveDemonstration):
    WARM_UP_S = 3.5
    MEASURED_S = 2.5

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        super().arguments(parser)
        parser.add_argument(
            "--variants",
            default=",".join(VARIANTS),
            help="variants to measure, separated by commas (default %(default)s)",
        )
        parser.add_argument(
            "--multiples",
            default=",".join(map(str, MULTIPLES)),
            help="offered loads as multiples of the peak, separated by commas (default %(default)s)",
        )
        parser.add_argument(
            "--share", type=float, default=SHARE, help="share of a core that each server gets (default %(default)s)"
        )
        parser.add_argument(
            "--generator", choices=OFFERS, default="tidegate", help="program that makes the calls (default %(default)s)"
        )

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        options.variants = options.variants.split(",")
        options.multiples = [float(multiple) for multiple in options.multiples.split(",")]
        if unknown := set(options.variants) - set(VARIANTS):
            raise SystemExit(f"no variant {', '.join(unknown)}: there are {', '.join(VARIANTS)}")

    def run(self) -> Results:
        trials: list[Trial] = []
        peaks: dict[str, float] = {}
        print(CONFIGURATION.format(address="127.0.0.1:5060", backend="127.0.0.1:5070"))
        for round_ in self.rounds:
            self.climb(peaks, round_)
            runs: list[tuple[str, float, Attempt]] = []
            at_start = self.factors(peaks, round_)
            for multiple, variant in itertools.product(self.options.multiples, self.options.variants):
                peak_cps = peaks[unprotected(variant)]
                offered = self.load(multiple * peak_cps, round_)
                runs.append((variant, multiple, self.attempt(variant, offered, peak_cps)))
            at_end = self.factors(peaks, round_)
            for variant, multiple, run in runs:
                program = unprotected(variant)
                capacity_cps = None
                if run.reference_us:
                    us_per_call = run.reference_us * (at_start[program] + at_end[program]) / 2
                    capacity_cps = self.options.share / (us_per_call / 1e6)
                trial = Trial(round_, multiple, peaks[program], run.outcome, variant, capacity_cps, run.number)
                trials.append(trial)
            print(f"round {round_} of {len(self.rounds)} done", flush=True)
        table.show(trials, COLUMNS, line=lambda one: f"{one.multiple:4.1f}", block=lambda one: one.variant)
        rows = self.rows("results", [one.row() for one in trials])
        if self.options.share < 1:
            self.judge(trials)
        else:
            self.expect_nothing("caller and callee may have less than the processor time that they need")
        return {"trials": rows}

    def climb(self, peaks: dict[str, float], round_: int) -> None:
        """Finds the peak of each program, starting from that of the previous round."""
        for program in dict.fromkeys(map(unprotected, self.options.variants)):

            def offer(offered: Load, program: str = program) -> Outcome:
                caller = OFFERS[self.options.generator]
                return measure(program, offered, self.profile, self.options.share, offer=caller)

            peaks[program], full = peak.peak(offer, self.options.share, peaks.get(program), round_)
            cost = f"{full.element_us_per_call:.0f} µs a call"
            print(f"round {round_}: the peak of {program} is {peaks[program]:.0f} calls/s, {cost}", flush=True)

    def attempt(self, variant: str, offered: Load, peak_cps: float) -> Attempt:
        """Measures one load. Again if the generator failed, because the machine may have been busy.

        SIPp, and a generator beside a whole core, are too slow in every attempt. Beside a whole core there is no
        processor for the reference either.
        """
        offer = OFFERS[self.options.generator]
        if self.options.share >= 1:
            return Attempt(measure(variant, offered, self.profile, self.options.share, peak_cps, offer), None, 1)
        attempts_max = peak.ATTEMPTS_MAX if self.options.generator == "tidegate" else 1
        for number in itertools.count(1):
            outcome, reference_us = compare(variant, offered, self.profile, self.options.share, peak_cps, offer)
            if not outcome.generator_failed or number == attempts_max:
                break
        return Attempt(outcome, reference_us, number)

    def factors(self, peaks: dict[str, float], round_: int) -> dict[str, float]:
        """Returns the CPU time of a call of each program without overload control, divided by that of the reference."""
        if self.options.share >= 1:
            return {}

        def factor(program: str, peak_cps: float) -> float:
            us: list[float] = []

            def offer(offered: Load) -> Outcome:
                outcome, reference_us = compare(program, offered, self.profile, self.options.share)
                us.append(reference_us)
                return outcome

            # In an overload, the CPU time is that of the quota, and too small for the calls that are offered.
            for power in range(1, LIGHTER_MAX + 1):
                if outcome := peak.carried(offer, self.load(LIGHT**power * peak_cps, round_)):
                    return outcome.steady_us_per_call / us[-1]
            raise SystemExit(f"{program} does not carry a small part of its peak any more")

        return {program: factor(program, peak_cps) for program, peak_cps in peaks.items()}

    def judge(self, trials: list[Trial]) -> None:
        """Expects the default to be protected, and to cost nothing up to the peak."""

        def of(variant: str, multiple: float) -> list[Trial]:
            return [one for one in trials if (one.variant, one.multiple) == (variant, multiple)]

        def kept_of(variant: str, multiple: float) -> list[float]:
            return [one.of_capacity for one in of(variant, multiple) if one.of_capacity is not None]

        for multiple in (0.5, 1.0):
            none, default = ({one.round: one.outcome.in_time for one in of(law, multiple)} for law in TIDEGATE)
            if none and default:
                noise = max(none.values()) - min(none.values())
                allowed = min(max(DIFFERENCE_MAX, noise), NOISE_MAX)
                # Both run one after the other in each round, so that the machine has about the same speed.
                less = Spread.of([none[round_] - default[round_] for round_ in none]).median
                self.expect(
                    less <= allowed,
                    f"at {multiple} of the peak the part of the calls that the default sets up is {less:.4f} below "
                    f"that of none, allowed are {allowed:.4f}",
                )
        for multiple, least in KEPT_MIN.items():
            if goodputs := kept_of("default", multiple):
                kept = Spread.of(goodputs).median
                self.expect(kept >= least, f"at {multiple} times the peak the default keeps {kept:.2f} of the capacity")
        without, control = (kept_of(variant, 2.0) for variant in TIDEGATE)
        if without and control:
            lost, kept = Spread.of(without).median, Spread.of(control).median
            self.expect(lost < kept / 2, f"at twice the peak none keeps {lost:.2f}, the default {kept:.2f}")
        if self.options.generator == "tidegate":
            # No condition depends on what collapses beyond twice the peak, nor on Kamailio, so a generator that was too
            # slow there is no reason to doubt one.
            judged = [one for one in trials if (one.variant, one.multiple > 2) in DECIDE]
            load.judge_generator(self, [one.outcome for one in judged])
