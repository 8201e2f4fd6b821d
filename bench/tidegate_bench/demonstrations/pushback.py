"""Three senders at up to 8 times the capacity of one receiver: feedback by `loss` keeps 90 % of it as goodput

The topology of paper 002 runs as real processes on loopback. Three callers, each with a Tidegate of its own that is as
fast as the machine, send to one Tidegate whose processor is emulated (72 calls/s, a rejection costs a sixth of a
message), in front of an answerer. The receiver tells its senders by RFC 7339 how much they may send: with the law
`tide` by the algorithms `rate` and `loss`, and with the laws of paper 002 by `loss`. Then the receiver controls its
load alone, with `tide`. Then there is no control. Goodput is the number of calls that are set up within 500 ms, as a
part of 72 a second. The table also shows the bound of any control at the receiver alone, and the goodput of the closed
loop of three senders that tests of `control` simulate, where a rejection costs less. `--quick` runs some of the
variants in two minutes for each seed. `--variants`, `--loads` and `--seconds` select others.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tidegate_bench import table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.load import DEADLINE_S
from tidegate_bench.process import Stage
from tidegate_bench.record import ROOT
from tidegate_bench.tidegate import built, cut

CAPACITY_CPS = 72.0
SENDERS = 3
# At the receiver, without transactions: INVITE, 180, 200, ACK, BYE, 200.
MESSAGES = 6
SERVE_US = 1e6 / CAPACITY_CPS / MESSAGES
REFUSE_US = SERVE_US / 6
LOADS = (1.0, 2.0, 4.0, 8.0)
WARM_UP_S = 3.0
# Time from the start of a caller's process to its first call, and time for the last answers.
SLACK_S = 0.7
KEPT_MIN = 0.9
# The least load beyond the capacity.
BEYOND = 1.5
# From this load on one server alone loses more than with feedback.
HEAVY = 4.0

EMULATE = f"[emulate]\nserve_us = {SERVE_US:.0f}\nrefuse_us = {REFUSE_US:.0f}\n"
# Callers name the senders in their Request-URIs.
ROUTE = '[[route]]\ndomain = ["127.0.0.1"]\nto = "app"\n'


def feedback(algorithms: str, law: str = "tide") -> str:
    overload = f'[overload]\nlaw = "{law}"\ndisposal = "reject"\n'
    return f'{overload}[overload.feedback]\nalgorithms = {algorithms}\npeers = ["127.0.0.1"]\n'


@dataclass(frozen=True)
class Variant:
    """The tables of the receiver, and its row in the table of the simulated closed loop."""

    tables: str
    simulated: str
    kept_min: float | None = None
    """The least goodput that is expected beyond the capacity. `None` if it is not judged."""


# The laws of paper 002, and the goodput that each must keep. `rate-occ` leaves a part of the processor idle: its
# target is an occupancy of .85.
LAWS = {"win-disc": KEPT_MIN, "win-cont": KEPT_MIN, "win-auto": KEPT_MIN, "rate-abs": KEPT_MIN, "rate-occ": 0.65}
VARIANTS = {
    "rate": Variant(feedback('["rate", "loss"]'), "tide, rate"),
    "loss": Variant(feedback('["loss"]'), "tide, loss", KEPT_MIN),
    # The simulation has `rate-abs` with `rate` only.
    **{
        law: Variant(feedback('["loss"]', law), f"{law}, {'rate' if law == 'rate-abs' else 'loss'}", least)
        for law, least in LAWS.items()
    },
    "local only": Variant(feedback("[]"), "tide, local"),
    "none": Variant('[overload]\nlaw = "none"\n[overload.feedback]\nalgorithms = []\n', "none, local"),
}


@dataclass(frozen=True)
class Choice:
    """The runs of a seed, unless options select others."""

    variants: tuple[str, ...]
    loads: tuple[float, ...]
    seconds: float


ALL = Choice(tuple(VARIANTS), LOADS, 10.0)
QUICK = Choice(("loss", "win-cont", "win-auto", "rate-abs", "rate-occ", "local only"), (2.0, 8.0), 5.0)
SIMULATED = ROOT / "crates/control/tests/closed_loop/pushback.txt"


def simulated(name: str, load: float) -> float | None:
    """The simulated goodput of a row, interpolated between the loads of the table; `None` if there is no row."""
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
    """The goodput that control at the receiver alone cannot exceed, because it has to reject each call in excess."""
    part = REFUSE_US / (MESSAGES * SERVE_US)
    return min(load, max(0.0, (1 - load * part) / (1 - part))) if load > 1 else load


def one(show: "Show", seed: int, variant: str, load: float) -> dict[str, Any]:
    profile, seconds = show.profile, show.options.seconds
    with Stage() as stage:
        callee = tidegate.callee(stage, "uas", profile)
        receiver = tidegate.start(
            stage, [callee.port], profile, name="receiver", tables=EMULATE + ROUTE + VARIANTS[variant].tables
        )
        senders = [
            tidegate.start(
                stage,
                [receiver.port],
                profile,
                name=f"sender-{index}",
                pool='obey_feedback = "always"\n',
                tables='[overload]\nlaw = "none"\n[overload.feedback]\nalgorithms = ["loss", "rate"]\n',
            )
            for index in range(SENDERS)
        ]
        callers, reports = [], []
        for index, sender in enumerate(senders):
            report = stage.directory / f"uac-{index}.json"
            command = [built("tidegate", profile), "load", "uac", sender.address, "--json", str(report)]
            command += ["--rate", str(load * CAPACITY_CPS / SENDERS), "--duration", str(WARM_UP_S + seconds)]
            command += ["--warm-up", str(WARM_UP_S), "--deadline", str(1000 * DEADLINE_S)]
            command += ["--arrivals", "poisson", "--seed", str(seed * SENDERS + index), "--slack", "1"]
            callers.append(stage.start(f"uac-{index}", command))
            reports.append(report)
        for caller in callers:
            caller.wait(WARM_UP_S + seconds + SLACK_S)
        for caller in callers:
            cut(caller)
        results = []
        for caller, report in zip(callers, reports, strict=True):
            try:
                results.append(json.loads(report.read_text()))
            except (OSError, ValueError):
                sys.exit(f"the caller left no report:\n{caller.tail()}")
        stats = [result["stats"]["measured"] for result in results]
        callee_drops = callee.process.drops()
        shown = receiver.metrics()
        name = f"{seed}-{variant.replace(' ', '-')}-{load:g}"
        show.text(f"{name}.receiver.metrics", shown.text)
        held = sum(sender.metrics().total("work_refused", reason="feedback") for sender in senders)
        show.text(f"{name}.sender.metrics", senders[0].metrics().text)
        in_time = [calls["set_up_in_time"] / seconds for calls in stats]
        goodput = sum(in_time) / CAPACITY_CPS
        jain = sum(in_time) ** 2 / (SENDERS * sum(cps**2 for cps in in_time)) if goodput else 0.0
        stage.kill()
    return {
        "seed": seed,
        "variant": variant,
        "load": load,
        "offered_cps": round(sum(calls["offered"] for calls in stats) / seconds, 1),
        "goodput": round(goodput, 3),
        "bound_alone": round(bound(load), 3),
        "simulated": simulated(VARIANTS[variant].simulated, load),
        "p99_ms": round(max(calls["set_up_delay"]["p99_us"] for calls in stats) / 1e3, 1),
        "held_by_senders": held,
        "refused_by_receiver": shown.total("work_refused"),
        "jain": round(jain, 4),
        "too_slow": sum(result["too_slow"] is not None for result in results),
        "generator_lost": sum(result["lost_datagrams"] for result in results) + (callee_drops > 0),
    }


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--seconds", type=float, help=f"measured, in s ({ALL.seconds:g}; --quick: {QUICK.seconds:g})"
        )
        parser.add_argument("--loads", type=float, nargs="+", help="multiples of 72 calls/s")
        parser.add_argument("--variants", nargs="+", choices=VARIANTS, help="of the receiver")
        parser.add_argument("--quick", action="store_true", help="a few variants and loads, unless others are selected")

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        choice = QUICK if options.quick else ALL
        options.variants = options.variants or list(choice.variants)
        options.loads = options.loads or list(choice.loads)
        options.seconds = options.seconds or choice.seconds

    def run(self) -> Results:
        rows = []
        for seed in self.rounds:
            for load in self.options.loads:
                for variant in self.options.variants:
                    row = one(self, seed, variant, load)
                    print(
                        f"seed {seed}, load {load:3g}, {variant:10}: goodput {row['goodput']:.3f}, bound alone "
                        f"{row['bound_alone']:.3f}, simulated {row['simulated']}; {row['held_by_senders']} held back, "
                        f"{row['refused_by_receiver']} refused",
                        flush=True,
                    )
                    rows.append(row)
        self.rows("runs", rows)
        for variant in self.options.variants:
            for load in self.options.loads:
                runs = [row for row in rows if row["variant"] == variant and row["load"] == load]
                table.show_spreads(runs, {"goodput": 3, "p99_ms": 1, "jain": 3}, f"{variant}, load {load:g}")

        def goodputs(variant: str, least: float) -> list[float]:
            return [row["goodput"] for row in rows if row["variant"] == variant and row["load"] >= least]

        judged = 0
        for variant in self.options.variants:
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
        return {"worst": {variant: min(goodputs(variant, BEYOND), default=None) for variant in self.options.variants}}
