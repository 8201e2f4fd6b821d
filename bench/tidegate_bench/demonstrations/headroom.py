"""Servers that reject calls keep 90 % of their capacity behind a Tidegate with configured or learned limits

Runs scenarios/pool-headroom.toml in simulated time, three runs of each parameter set. Four servers, one of them at
half the speed, reject calls by two watermarks of their queues. Tidegate has no limits, configured limits, or learned
limits. With `--rounds 1` each parameter set has one run instead of three.
"""

from typing import Any

from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.experiment import Run
from tidegate_bench.record import Spread

LABELS = {"none": "no limits", "configured": "configured", "learned": "learned"}
OVERLOAD = (1.5, 2.0, 3.0)


def goodput(point: dict[str, Any]) -> float:
    """Returns goodput as a part of the capacity."""
    outcome = point["outcome"]
    return outcome["good"] / outcome["measured_s"] / point["capacity_cps"]


def rejected(point: dict[str, Any]) -> float:
    """Returns the share of the INVITEs that the servers rejected."""
    servers = [n for n in point["outcome"]["nodes"] if n["node"].startswith("server-")]
    invites = sum(n["received"].get("invite", 0) for n in servers)
    return sum(sum(n["rejected"].values()) for n in servers) / max(1, invites)


class Show(Demonstration):
    PROFILE = "debug"

    def run(self) -> Results:
        run = Run(self, "pool-headroom", build=self.profile, repetitions=str(len(self.rounds)))
        loads = sorted({point["swept"]["load"] for point in run.points})

        spreads = {
            (label, load): [Spread.of([of(point) for point in run.of(label, load=load)]) for of in (goodput, rejected)]
            for label in LABELS
            for load in loads
        }
        print("\ngoodput ÷ capacity, and the share of INVITEs that the servers rejected: minimum, median, maximum")
        for label, what in LABELS.items():
            for load in loads:
                good, bad = spreads[label, load]
                print(f"  {what:<12}{load:>5g}  {good.text(3)}    {bad.text(3)}")
        print()

        def median(label: str, load: float) -> tuple[float, float]:
            good, bad = spreads[label, load]
            return good.median, bad.median

        for load in OVERLOAD:
            known, learned = median("configured", load), median("learned", load)
            before = median("none", load)
            self.expect(
                known[0] >= 0.9 and known[1] <= 0.01,
                f"at {load:g}, configured: goodput {known[0]:.3f}, rejected {known[1]:.1%}",
            )
            self.expect(
                learned[0] >= 0.9 and learned[1] <= 0.1,
                f"at {load:g}, learned: goodput {learned[0]:.3f}, rejected {learned[1]:.1%}",
            )
            self.expect(
                before[0] <= 0.9 * learned[0],
                f"at {load:g}, without limits: lower goodput {before[0]:.3f}, rejected {before[1]:.1%}",
            )
        for label, what in LABELS.items():
            light = [point["outcome"] for point in run.of(label, load=loads[0])]
            carried = min(outcome["good"] / outcome["offered"] for outcome in light)
            self.expect(carried >= 0.999, f"at {loads[0]:g}, {what}: {carried:.2%} of the load is carried")
        self.rows(
            "runs",
            [
                {
                    "label": label,
                    "load": point["swept"]["load"],
                    "seed": point["seed"],
                    "goodput": goodput(point),
                    "rejected": rejected(point),
                }
                for label in LABELS
                for point in run.of(label)
            ],
        )
        return {}
