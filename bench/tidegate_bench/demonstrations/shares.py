"""Senders that come and go have the shares that fairness gives them, in the dynamic run of paper 002

Runs scenarios/paper-002-dynamic-real.toml (paper 002 §6.2, ten times as fast) on real sockets: three sources of calls,
each with a server of its own, begin and end, while the receiver divides its capacity among these servers. With
`provider` each active sender has the same share of the capacity, but no more than it needs. With `user` each has a
share in proportion to its load. The table shows the shares in each phase, without its first 5 s, and Jain's index of
fairness: with `provider` of the goodput of the active senders, with `user` of the fraction of its calls that each sets
up in time. The figure of the shares over time is shares.svg. Three runs of a variant take place at the same time.
"""

import csv
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from tidegate_bench import feedback, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.experiment import Run, judge_generator
from tidegate_bench.table import Column

SCENARIO = "paper-002-dynamic-real"
LABELS = {"tide, provider": "provider", "tide, user": "user", "win-cont, user": "user"}
SENDERS = ("se1", "se2", "se3")
# The phases of the scenario: begin and end in seconds, and the loads of the senders.
PHASES = {
    (10, 40): (0.57, 0.0, 0.0),
    (40, 70): (0.57, 1.68, 0.0),
    (70, 100): (0.57, 1.68, 3.36),
    (100, 130): (0.57, 1.68, 0.0),
    (130, 150): (0.0, 1.68, 0.0),
}
# Not counted: the time in which the senders get their shares, and the last sample, which may be a little late.
SETTLED_S = 5
END_S = 1
# The largest allowed difference of a share from that of ideal fairness, in parts of the capacity, in each run.
TOLERANCE = 0.05
JAIN_MIN = 0.98


def ideal(loads: Sequence[float], fairness: str) -> list[float]:
    """Returns the shares of senders with these loads in a capacity of 1."""
    if sum(loads) <= 1:
        return list(loads)
    if fairness == "user":
        return [load / sum(loads) for load in loads]
    shares, left = [0.0] * len(loads), 1.0
    for waiting, at in enumerate(sorted(range(len(loads)), key=lambda at: loads[at])):
        shares[at] = min(loads[at], left / (len(loads) - waiting))
        left -= shares[at]
    return shares


def phases(run: Run, label: str, point: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a row for each phase of a run."""
    rates = samples(run.folder / "out" / point["folder"] / "timeline.csv")

    def means(quantity: str, begin: float, end: float) -> list[float]:
        within = (
            [cps for at, cps in rates.get((f"callers-{sender}", quantity), []) if begin + SETTLED_S < at <= end - END_S]
            for sender in SENDERS
        )
        return [fmean(cps) / run.capacity_cps for cps in within]

    rows = []
    for (begin, end), loads in PHASES.items():
        good, offered = means("in_time_cps", begin, end), means("offered_cps", begin, end)
        expected = ideal(loads, LABELS[label])
        active = [at for at, load in enumerate(loads) if load]
        by_fairness = [good[at] / offered[at] if LABELS[label] == "user" else good[at] for at in active]
        # Senders with room for all their calls do not compete.
        index = feedback.jain(by_fairness) if sum(loads) > 1 else None
        rows.append(
            {
                "label": label,
                "seed": point["seed"],
                "from_s": begin,
                "to_s": end,
                **{sender: round(good[at], 4) for at, sender in enumerate(SENDERS)},
                **{f"{sender}_ideal": round(expected[at], 4) for at, sender in enumerate(SENDERS)},
                "off": round(max(abs(good[at] - expected[at]) for at in active), 4),
                "total": round(sum(good), 4),
                "jain": None if index is None else round(index, 4),
            }
        )
    return rows


def samples(timeline: Path) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Reads a timeline: for each node and quantity, the times in s and the values."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with timeline.open(newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["node"], row["quantity"]), []).append((float(row["t_s"]), float(row["value"])))
    return found


COLUMNS = [
    *(
        column
        for sender in SENDERS
        for column in (Column(f"{sender}: ideal", f"{sender}_ideal", 3), Column(sender, sender, 3, "spread"))
    ),
    Column("total", "total", 3),
    Column("Jain", "jain", 4, "min"),
]


class Show(Demonstration):
    PROFILE = "release"

    def run(self) -> Results:
        run = Run(self, SCENARIO, "real", 3, self.profile, repetitions=str(len(self.rounds)))
        rows = [row for label in LABELS for point in run.of(label) for row in phases(run, label, point)]
        self.rows("phases", rows)
        self.keep(run.folder / "out" / "shares.svg", run.folder / "out" / "shares.png")
        table.show(rows, COLUMNS, lambda row: f"{row['from_s']} to {row['to_s']} s", lambda row: row["label"])
        for label, (begin, end) in product(LABELS, PHASES):
            mine = [row for row in rows if (row["label"], row["from_s"]) == (label, begin)]
            off = max(row["off"] for row in mine)
            self.expect(
                off <= TOLERANCE, f"{label}, {begin} to {end} s: each share is within {off:.3f} of the ideal one"
            )
        for label in LABELS:
            least = min(row["jain"] for row in rows if row["label"] == label and row["jain"] is not None)
            self.expect(least >= JAIN_MIN, f"{label}: Jain's index is at least {least:.4f}")
        for label in LABELS:
            indices = [point["outcome"]["fairness"] for point in run.of(label)]
            print(f"        {label}: Jain's index of the fractions set up in the whole run: {indices}")
        judge_generator(self, run.points)
        return {"phases": rows}
