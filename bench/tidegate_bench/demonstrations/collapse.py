"""002's collapse without feedback, simulated: offered load to goodput, and why, claim by claim

Three callers' servers as fast as can be before one that is not: a queue of 500 messages, 500
messages a second, 3000 refusals a second, seven messages a call. What comes when the queue is full
is dropped, or INVITEs are refused from 400 waiting messages down to 200; the ACK to a 503 costs
nothing, or as much as any message, since the paper does not say. 180 runs, some five minutes.
"""

import statistics
from pathlib import Path
from typing import Any, NamedTuple

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import ROOT, Record
from tidegate_bench.verdicts import Verdicts, graded

SCENARIOS = {
    "free": ROOT / "scenarios" / "paper-002-collapse.toml",
    "costs": ROOT / "scenarios" / "paper-002-collapse-ack.toml",
}
ACK = {"free": "the ACK to a 503 costs nothing", "costs": "the ACK to a 503 costs a message"}
DROP = "simple drop (service, fifo)"
THRESHOLDS = {
    "threshold rejection (service, fifo)": "refused when their turn comes",
    "threshold rejection (arrival, fifo)": "refused as they arrive",
}


class Seen(NamedTuple):
    """The median of the runs of one variant under one load."""

    goodput: float
    """Calls set up to the ACK within 10 s, as a part of the capacity."""
    reached: float
    """Calls whose INVITE reached the callee, as a part of those offered."""
    lost_180: float
    """180s that the callee sent and nobody got, as a part of them."""
    lost_200: float
    """The same of 200s to INVITE, each sending counted."""
    refused: float
    """INVITEs that the server answered with 503, as a part of those sent to it."""


Curve = dict[float, Seen]


def run(record: Record, scenario: Path) -> dict[str, Curve]:
    results = program.scenario(scenario, record.directory / scenario.stem, "--world", "sim")
    seen: dict[str, dict[float, list[Seen]]] = {}
    for point in results["points"]:
        load = point["swept"]["load"]
        of_variant = seen.setdefault(point["variant"], {}).setdefault(load, [])
        of_variant.append(look(point["outcome"], results["capacity_cps"]))
    return {variant: {load: median(runs) for load, runs in curve.items()} for variant, curve in seen.items()}


def look(outcome: dict[str, Any], capacity_cps: float) -> Seen:
    sent: dict[tuple[str, str, str], int] = {}
    for flow in outcome["flows"]:
        ends = (name.rstrip("123") for name in (flow["from"], flow["to"]))
        key = (*ends, flow["message"])
        sent[key] = sent.get(key, 0) + flow["sent"]

    def lost(message: str) -> float:
        through = sent.get(("re", "se", message), 0)
        return 1 - part(through, sent.get(("answerers", "re", message), 0))

    offered = sum(callers["stats"]["offered"] for callers in outcome["callers"])
    refused = sent.get(("re", "se", "503 INVITE"), 0)
    return Seen(
        goodput=outcome["good"] / outcome["measured_s"] / capacity_cps,
        reached=part(outcome["answerers"]["calls"], offered),
        lost_180=lost("180 INVITE"),
        lost_200=lost("200 INVITE"),
        refused=part(refused, sent.get(("se", "re", "INVITE"), 0)),
    )


def part(some: int, whole: int) -> float:
    """Of nothing, all."""
    return some / whole if whole > 0 else 1.0


def median(runs: list[Seen]) -> Seen:
    return Seen(*(statistics.median(values) for values in zip(*runs, strict=True)))


def table(curves: dict[str, Curve]) -> None:
    print(f"  {'':<38}{'load':>5}{'goodput':>9}{'INVITEs':>9}{'180s':>7}{'200s':>7}{'503s':>7}")
    print(f"  {'':<38}{'':>5}{'/C':>9}{'arriving':>9}{'lost':>7}{'lost':>7}{'/INVITE':>8}")
    for variant, curve in curves.items():
        for load, seen in curve.items():
            name = variant if load == min(curve) else ""
            print(
                f"  {name:<38}{load:>5}{seen.goodput:>9.3f}{seen.reached:>9.1%}"
                f"{seen.lost_180:>7.0%}{seen.lost_200:>7.0%}{seen.refused:>7.0%}"
            )


def judge(verdicts: Verdicts, ack: str, curves: dict[str, Curve]) -> None:
    for variant, curve in curves.items():
        calm = min(seen.goodput / load for load, seen in curve.items() if load <= 0.9)
        after = max(seen.goodput for load, seen in curve.items() if load >= 1.3)
        whole = calm >= 0.95 and after <= 0.5
        verdict = graded(whole, after <= 0.8)
        numbers = ", ".join(f"{curve[load].goodput:.2f} at {load:g}" for load in (0.9, 1, 1.3, 3))
        # Whether refusing INVITEs collapses as dropping them does depends on what they cost.
        known = variant == DROP or ack == "costs"
        verdicts.say(f"goodput collapses near load 1, {variant}", verdict, numbers, known=known)

    drop = curves[DROP]
    for variant in THRESHOLDS:
        apart = {load: abs(drop[load].goodput - seen.goodput) for load, seen in curves[variant].items()}
        worst = max(apart, key=apart.__getitem__)
        verdict = graded(apart[worst] <= 0.1, apart[worst] <= 0.25)
        numbers = f"at most {apart[worst]:.2f} apart, at {worst:g}"
        verdicts.say(f"the curves overlap, {variant}", verdict, numbers, known=False)

    # Which load the paper's reasons are for it does not say: here that of triple overload.
    seen = drop[3]
    reached = abs(seen.reached - 1 / 3) <= 0.07
    numbers = (
        f"at load 3 {seen.reached:.0%} of the calls reach the callee, {seen.lost_180:.0%} of"
        f" the 180s and {seen.lost_200:.0%} of the 200s are lost"
    )
    lost = min(seen.lost_180 - 0.9, seen.lost_200 - 0.5)
    verdict = graded(reached and lost >= 0, lost >= -0.2)
    claim = "dropping: a third of the INVITEs arrive, all 180s are lost and most 200s"
    verdicts.say(claim, verdict, numbers, known=True)

    for variant, how in THRESHOLDS.items():
        # Of all that are offered few can be served: what arrives is seen beside the capacity.
        arriving = {load: seen.reached * load for load, seen in curves[variant].items()}
        beyond = [calls for load, calls in arriving.items() if load >= 3]
        least, most = min(beyond), max(beyond)
        verdict = graded(most <= 0.1, least <= 0.1)
        numbers = ", ".join(f"{arriving[load]:.2f} at {load:g}" for load in (1.3, 3, 8.4))
        known = ack == "costs" and how == "refused when their turn comes"
        claim = f"refusing: no INVITE arrives, {how}"
        verdicts.say(claim, verdict, f"calls that do, ÷ C: {numbers}", known=known)


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        verdicts = Verdicts(self)
        rows = []
        for ack, scenario in SCENARIOS.items():
            curves = run(self, scenario)
            print(f"\n{ACK[ack]}")
            table(curves)
            judge(verdicts, ack, curves)
            rows += [
                {"ack": ack, "variant": variant, "load": load, **seen._asdict()}
                for variant, curve in curves.items()
                for load, seen in curve.items()
            ]
        self.rows("curves", rows)
        self.rows("claims", verdicts.all)
        return {}
