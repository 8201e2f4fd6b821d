"""Simulation finds good gains of pi from bad ones, and does not make good ones worse

Runs `tidegate lab tune` on scenarios/tune-pi.toml in simulated time for the two gains of the processor loop: from the
paper's values (5 and 5), from values far too low (0.3 and 0.1), and from values far too high (200 and 500). Each
search is evaluated with seeds that it has not used.
"""

import json
from pathlib import Path
from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results

STARTS = {"paper": (5.0, 5.0), "low": (0.3, 0.1), "high": (200.0, 500.0)}
STEPS = 80


def tune(name: str, k_pc: float, k_ic: float, folder: Path) -> dict[str, Any]:
    search = ("--law", "pi", "--param", "k_pc", "--param", "k_ic", "--from", f"k_pc={k_pc}", "--from", f"k_ic={k_ic}")
    program.lab("tune", "scenarios/tune-pi.toml", *search, "--steps", STEPS, "--out", folder / name)
    result: dict[str, Any] = json.loads((folder / name / "tuned.json").read_text())
    return result


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        runs = {}
        for name, (k_pc, k_ic) in STARTS.items():
            run = runs[name] = tune(name, k_pc, k_ic, self.directory)
            before, after = run["before"], run["after"]
            print(
                f"{name:<6} k_pc {k_pc:>6} -> {run['found']['k_pc']:8.3f}  "
                f"k_ic {k_ic:>6} -> {run['found']['k_ic']:8.3f}  goodput / bound "
                f"{before['median']:.3f} -> {after['median']:.3f} "
                f"({after['min']:.3f} to {after['max']:.3f})",
                flush=True,
            )
        paper = runs["paper"]
        self.expect(
            paper["after"]["median"] >= paper["before"]["median"] - 0.01,
            "the gains found from those of the paper are not worse",
        )
        kept = paper["before"]["median"]
        for name in ("low", "high"):
            lost = kept - runs[name]["before"]["median"]
            left = kept - runs[name]["after"]["median"]
            self.expect(
                left <= 0.5 * lost or left < 0.02,
                f"from {name} gains: of a loss of {lost:.3f} the search leaves {left:.3f}",
            )
        self.rows(
            "results",
            [
                {
                    "start": name,
                    **{f"{gain}_start": run["start"][gain] for gain in run["sought"]},
                    **{f"{gain}_found": run["found"][gain] for gain in run["sought"]},
                    **{f"before_{key}": value for key, value in run["before"].items()},
                    **{f"after_{key}": value for key, value in run["after"].items()},
                }
                for name, run in runs.items()
            ],
        )
        return {"runs": runs}
