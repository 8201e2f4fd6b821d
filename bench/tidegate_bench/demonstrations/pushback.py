"""Three senders at up to 8 times the capacity of one receiver: with feedback, goodput is 99 % of the capacity

The topology of paper 002 runs as real processes on loopback. Three callers, each with a Tidegate of its own that is as
fast as the machine, send to one Tidegate whose processor is emulated (72 calls/s, a rejection costs a sixth of a
message), in front of an answerer. The receiver tells its senders by RFC 7339 how much they may send. With the law
`tide` it uses the algorithms `rate` and `loss`. With the laws of paper 002 it uses `loss`, and with `rate-abs` also
`rate`. Then the receiver controls its load alone, with `tide`. Then there is no control. Goodput is the number of calls
that are set up within 500 ms, as a part of 72 a second. Each run counts the calls of 14 s. With `tide`, 99 % of the
calls must also be ended by a BYE, because senders may hold back BYEs. The table also shows the bound of any control at
the receiver alone, and the goodput that tests of the crate `control` simulate for three senders in a closed loop, in
which a rejection costs less. Two runs take place at once (`--jobs`), because the processors are emulated. Three rounds
take 25 minutes. `--quick` runs some of the variants in a minute for each seed. `--variants`, `--loads` and `--seconds`
select others. The smaller the server, the fewer calls fit into the queue of `tide`, and the more often it is empty at
1.4 times the capacity. `--capacity 288` shows this with a larger server.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, product
from statistics import fmean
from typing import Any

from tidegate_bench import feedback, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.feedback import CAPACITY_CPS, MESSAGES, REJECT, SENDERS
from tidegate_bench.load import Load, delay_ms, words
from tidegate_bench.process import Stage, in_parallel
from tidegate_bench.record import ROOT
from tidegate_bench.tidegate import built, cut, read_report

LOADS = (1.0, 1.4, 2.0, 4.0, 8.0)
WARM_UP_S = 3.0
# Time from the start of a caller's process to its first call, and time for the last answers.
SLACK_S = 0.7
KEPT_MIN = 0.9
# The least load beyond the capacity. At the capacity itself the gaps between calls leave the server idle.
BEYOND = 1.2
# The least goodput with feedback and `tide` beyond the capacity, in the mean of the rounds. Beyond the capacity the
# server always has a call to serve. So chance decides only how many of the calls wait at the beginning and the end of
# the measured time: some 4 of the 1,008 calls of 14 s, which is .4 %, or .2 % in the mean of three rounds.
FULL = 0.99
# The least part of the calls with feedback and `tide` whose BYE must be answered. A sender that holds BYEs back leaves
# the receiver more time for new calls, so that the goodput seems higher than the capacity.
ENDED_MIN = 0.99
# At the capacity and below it, chance decides when calls come, but every variant gets the same calls. The mean goodput
# with feedback and `tide` may be this much below that of `none`. In the simulated closed loop it is .02.
EVEN_MAX = 0.02
# From this load on, a receiver that controls its load alone must have less goodput than one with feedback.
HEAVY = 4.0


@dataclass(frozen=True)
class Variant:
    """The tables of the receiver, and its row in the table of the simulated closed loop."""

    tables: str
    simulated: str
    kept_min: float | None = None
    """The least goodput of a run that is expected beyond the capacity. `None` if single runs are not judged."""


# The laws of paper 002, and the goodput that each must keep. `rate-occ` leaves a part of the processor idle: its
# target is an occupancy of .85.
LAWS = {"win-disc": KEPT_MIN, "win-cont": KEPT_MIN, "win-auto": KEPT_MIN, "rate-abs": KEPT_MIN, "rate-occ": 0.65}
RATE = ("rate", "loss")
# The variants with feedback by `tide`.
TIDE = ("rate", "loss")
VARIANTS = {
    "rate": Variant(feedback.given(RATE), "tide, rate"),
    "loss": Variant(feedback.given(), "tide, loss"),
    # The simulation has `rate-abs` with `rate` only.
    **{
        law: Variant(feedback.given(law=law), f"{law}, {'rate' if law == 'rate-abs' else 'loss'}", least)
        for law, least in LAWS.items()
    },
    "rate-abs, rate": Variant(feedback.given(RATE, "rate-abs"), "rate-abs, rate", KEPT_MIN),
    "local only": Variant(feedback.given(()), "tide, local"),
    "none": Variant('[overload]\nlaw = "none"\n' + feedback.NO_FEEDBACK, "none, local"),
}


@dataclass(frozen=True)
class Choice:
    """The runs of a seed, unless options select others."""

    variants: tuple[str, ...]
    loads: tuple[float, ...]
    seconds: float


ALL = Choice(tuple(VARIANTS), LOADS, 14.0)
QUICK = Choice(("loss", "win-cont", "win-auto", "rate-abs", "rate-occ", "local only"), (2.0, 8.0), 5.0)
SIMULATED = ROOT / "crates/control/tests/closed_loop/pushback.txt"


def simulated(name: str, load: float) -> float | None:
    """Returns the simulated goodput of a row, interpolated between the loads, or `None` if there is no such row."""
    lines = SIMULATED.read_text().splitlines()
    loads = next([float(cell) for cell in line.split()[1:]] for line in lines if line.startswith("offered"))
    row = next((line.removeprefix(name).split() for line in lines if line.startswith(name + "  ")), None)
    if row is None:
        return None
    points = list(zip(loads, map(float, row), strict=False))
    for (below, left), (above, right) in pairwise(points):
        if below <= load <= above:
            return round(left + (right - left) * (load - below) / (above - below), 3)
    return None


def bound(load: float) -> float:
    """Returns the highest goodput with control at the receiver alone, which must reject each call in excess."""
    part = REJECT / MESSAGES
    return min(load, max(0.0, (1 - load * part) / (1 - part))) if load > 1 else load


def longest_ms(stats: Iterable[Mapping[str, Any]]) -> float | None:
    """Returns the longest p99 of the set-up delays of all callers in ms, or `None` if none of them set up a call."""
    delays = [delay_ms(calls["set_up_delay"], "p99") for calls in stats]
    return max((round(ms, 1) for ms in delays if ms is not None), default=None)


def one(show: "Show", seed: int, load: float, variant: str) -> dict[str, Any]:
    profile, seconds, capacity_cps = show.profile, show.options.seconds, show.options.capacity
    with Stage() as stage:
        callee, receiver = feedback.receiver(stage, profile, VARIANTS[variant].tables, capacity_cps)
        senders = [feedback.sender(stage, receiver, profile, index) for index in range(SENDERS)]
        callers, reports = [], []
        for index, sender in enumerate(senders):
            report = stage.directory / f"uac-{index}.json"
            offered = Load(load * capacity_cps / SENDERS, WARM_UP_S, seconds, seed * SENDERS + index)
            command = [built("tidegate", profile), "load", "uac", sender.address, *words(offered, report)]
            callers.append(stage.start(f"uac-{index}", command))
            reports.append(report)
        until = time.monotonic() + WARM_UP_S + seconds + SLACK_S
        for caller in callers:
            caller.wait(until - time.monotonic())
        for caller in callers:
            cut(caller)
        results = [read_report(caller, report) for caller, report in zip(callers, reports, strict=True)]
        counts = [result["stats"] for result in results]
        stats = [all_["measured"] for all_ in counts]
        callee.process.require_running()
        callee_drops = callee.process.drops()
        shown = receiver.metrics()
        name = f"{seed}-{variant.replace(', ', '-').replace(' ', '-')}-{load:g}"
        show.text(f"{name}.receiver.metrics", shown.text)
        held = sum(sender.metrics().total("work_rejected", reason="feedback") for sender in senders)
        show.text(f"{name}.sender.metrics", senders[0].metrics().text)
        in_time = [calls["set_up_in_time"] / seconds for calls in stats]
        goodput = sum(in_time) / capacity_cps
        stage.kill()
    return {
        "seed": seed,
        "variant": variant,
        "load": load,
        "offered_cps": round(sum(calls["offered"] for calls in stats) / seconds, 1),
        "goodput": round(goodput, 3),
        "bound_alone": round(bound(load), 3),
        "simulated": simulated(VARIANTS[variant].simulated, load),
        "p99_ms": longest_ms(stats),
        "held_by_senders": held,
        "rejected_by_receiver": shown.total("work_rejected"),
        "jain": round(feedback.jain(in_time) or 0.0, 4),
        # Calls whose BYE was answered, as a part of those that were set up. A few are open at the end.
        "ended": round(sum(all_["completed"] for all_ in counts) / max(1, sum(all_["set_up"] for all_ in counts)), 4),
        "late_p99_ms": round(max(all_["lateness"]["p99_us"] for all_ in counts) / 1e3, 2),
        "too_slow": sum(result["too_slow"] is not None for result in results),
        "generator_lost": sum(result["lost_datagrams"] for result in results) + (callee_drops > 0),
    }


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--seconds", type=float, help=f"measured time in s (default {ALL.seconds:g}; --quick: {QUICK.seconds:g})"
        )
        parser.add_argument("--loads", type=float, nargs="+", help="offered loads as multiples of the capacity")
        parser.add_argument(
            "--capacity",
            type=float,
            default=CAPACITY_CPS,
            help="capacity of the receiver in calls/s (default %(default)g)",
        )
        parser.add_argument("--variants", nargs="+", choices=VARIANTS, help="variants of the receiver to measure")
        parser.add_argument("--jobs", type=int, default=2, help="number of runs at once (default %(default)s)")
        parser.add_argument(
            "--quick", action="store_true", help="measure only a few variants and loads, unless others are selected"
        )

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        choice = QUICK if options.quick else ALL
        options.variants = options.variants or list(choice.variants)
        options.loads = options.loads or list(choice.loads)
        options.seconds = options.seconds or choice.seconds
        if options.capacity <= 0:
            sys.exit("--capacity must be greater than 0")

    def run(self) -> Results:
        rows = []
        choice = self.options
        planned = product(self.rounds, choice.loads, choice.variants)
        for row in in_parallel(choice.jobs, partial(one, self), *zip(*planned, strict=True)):
            print(
                f"seed {row['seed']}, load {row['load']:3g}, {row['variant']:14}: goodput {row['goodput']:.3f}, bound "
                f"alone {row['bound_alone']:.3f}, simulated {row['simulated']}; {row['held_by_senders']} held back, "
                f"{row['rejected_by_receiver']} rejected, {row['ended']:.3f} ended, {row['late_p99_ms']} ms late",
                flush=True,
            )
            rows.append(row)
        self.rows("runs", rows)
        for variant in choice.variants:
            for load in choice.loads:
                runs = [row for row in rows if row["variant"] == variant and row["load"] == load]
                table.show_spreads(
                    runs, {"goodput": 3, "p99_ms": 1, "jain": 3, "late_p99_ms": 2}, f"{variant}, load {load:g}"
                )

        def goodputs(variant: str, least: float) -> list[float]:
            return [row["goodput"] for row in rows if row["variant"] == variant and row["load"] >= least]

        def mean(variant: str, load: float) -> float:
            return fmean(row["goodput"] for row in rows if row["variant"] == variant and row["load"] == load)

        judged = 0
        for variant, load in product([v for v in TIDE if v in choice.variants], choice.loads):
            if load >= BEYOND:
                judged += 1
                self.expect(
                    mean(variant, load) >= FULL,
                    f"with {variant} at load {load:g} the mean goodput is {mean(variant, load):.4f}, at least {FULL}",
                )
            elif "none" in choice.variants:
                judged += 1
                self.expect(
                    mean(variant, load) >= mean("none", load) - EVEN_MAX,
                    f"with {variant} at load {load:g} the mean goodput is {mean(variant, load):.4f}, and "
                    f"{mean('none', load):.4f} without control",
                )
        for variant in [v for v in TIDE if v in choice.variants]:
            least = min(row["ended"] for row in rows if row["variant"] == variant)
            self.expect(least >= ENDED_MIN, f"with {variant} at least {least:.3f} of the calls ended by a BYE")
        for variant in choice.variants:
            kept, kept_min = goodputs(variant, BEYOND), VARIANTS[variant].kept_min
            if kept and kept_min is not None:
                judged += 1
                self.expect(
                    min(kept) >= kept_min, f"with {variant} the goodput beyond the capacity is at least {kept_min}"
                )
        with_loss, alone = goodputs("loss", HEAVY), goodputs("local only", HEAVY)
        if with_loss and alone:
            judged += 1
            self.expect(
                min(with_loss) > max(alone),
                f"from load {HEAVY:g} on goodput is higher with loss than with local control alone",
            )
        slow, lost = (sum(row[key] > 0 for row in rows) for key in ("too_slow", "generator_lost"))
        self.expect(slow == 0, f"a caller was too slow in {slow} of {len(rows)} runs")
        self.expect(lost == 0, f"a caller or the callee lost datagrams in {lost} of {len(rows)} runs")
        if not judged:
            self.expect_nothing(f"no selected variant has to keep a part of the load beyond {BEYOND:g}")
        return {"worst": {variant: min(goodputs(variant, BEYOND), default=None) for variant in choice.variants}}
