"""Every law in every difficult scenario: the default keeps 85 % of the bound in all of them

scenarios/tournament has constant loads, misread occupancy, heavy-tailed and changing costs, a processor that others
use, a quota, retransmissions, a wave of BYEs, slow back ends, a step to ten times the load, bursts, and small sources
beside a trunk, with fair shares and without. Each law runs on the same path as all others and on its own path
(own-paths.toml). For each scenario the laws are listed by their goodput, with the 95 % interval of its mean. `=` marks
a law that is not significantly worse than the first. `trunk` and `others` are the calls of the trunk and of the small
sources that were set up in time, as fractions of their calls.
"""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results

KEPT_MIN = 0.85
LAW = "tide"
MARKS = {"first": "1", "tied": "=", "behind": " "}


def mean(spread: dict[str, Any] | None, digits: int) -> str:
    """Returns the mean of a spread, and half the width of its interval, as text."""
    if spread is None:
        return "-"
    low, high = spread["ci95"] or (spread["mean"], spread["mean"])
    return f"{spread['mean']:.{digits}f} ±{(high - low) / 2:.{digits}f}"


def settled(entrant: dict[str, Any]) -> str:
    """Returns the mean time of the runs that settled, and their number, as text."""
    count, spread = entrant["settled"]
    return mean(spread, 2) if spread is None else f"{mean(spread, 2)} ({count})"


def lines(entrants: list[dict[str, Any]]) -> Iterator[str]:
    """Yields the head of the table, and a line for each entrant, the best first."""
    yield (
        f"    {'':22}{'goodput ÷ C':>14}{'÷ bound':>14}{'p99, ms':>13}{'settled, s (runs)':>19}{'early':>16}"
        f"{'Jain':>14}{'trunk':>14}{'others':>14}"
    )
    for entrant in sorted(entrants, key=lambda entrant: -float(entrant["goodput"]["mean"])):
        name = entrant["law"] + (" (own)" if entrant["route"] == "own" else "")
        yield (
            f"  {MARKS[entrant['place']]} {name:22}{mean(entrant['goodput'], 3):>14}{mean(entrant['kept'], 3):>14}"
            f"{mean(entrant['p99_ms'], 0):>13}{settled(entrant):>19}{mean(entrant['early'], 4):>16}"
            f"{mean(entrant['fairness'], 3):>14}{mean(entrant['trunk'], 3):>14}{mean(entrant['others'], 3):>14}"
        )


class Show(Demonstration):
    ROUNDS = 10

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--laws", help="laws to compare, separated by commas (default: all)")
        parser.add_argument("--scenarios", help="scenarios to run, separated by commas (default: all)")

    def run(self) -> Results:
        out = self.directory / "tournament"
        options: list[object] = ["--seeds", len(self.rounds), "--out", out]
        for name in ("laws", "scenarios"):
            if chosen := getattr(self.options, name):
                options += [f"--{name}", chosen]
        program.lab("tournament", *options)
        results = json.loads((out / "results.json").read_text())
        rows = []
        for bout in results["bouts"]:
            print(f"\n{bout['bout']}: {bout['title']}")
            print("\n".join(lines(bout["entrants"])))
            rows += [
                {
                    "bout": bout["bout"],
                    "law": entrant["law"],
                    "path": entrant["route"],
                    "place": entrant["place"],
                    "goodput": entrant["goodput"]["mean"],
                    "of_bound": entrant["kept"] and entrant["kept"]["mean"],
                }
                for entrant in bout["entrants"]
            ]
        own = [row for row in rows if row["law"] == LAW and row["path"] == "same"]
        if not own:
            self.expect_nothing(f"{LAW} is not one of the laws")
        for row in own:
            best = max(other["goodput"] for other in rows if (other["bout"], other["path"]) == (row["bout"], "same"))
            of_best = row["goodput"] / best
            self.expect(
                row["of_bound"] is None or row["of_bound"] >= KEPT_MIN,
                f"{LAW} in {row['bout']}: {row['of_bound'] or 0:.3f} of the bound, {of_best:.3f} of the best law",
            )
        behind = [row["bout"] for row in own if row["place"] == "behind"]
        ahead = len(own) - len(behind)
        print(f"\n  {LAW} is first or tied in {ahead} of {len(own)}; behind in {', '.join(behind) or 'none'}")
        print(f"  {out}/report.html")
        self.rows("results", rows)
        return {"behind": behind}
