"""A scenario of `scenarios/` that `tidegate lab run` runs, and the results of its runs."""

import re
from collections.abc import Mapping
from typing import Any

from tidegate_bench import program
from tidegate_bench.record import ROOT, Record

Points = list[dict[str, Any]]


def judge_scenario(record: Record, results: Mapping[str, Any]) -> None:
    """Expects what the scenario of these results expects in its tables [[expect]]."""
    for verdict in results["conditions"]:
        record.expect(verdict["held"], verdict["condition"])


def judge_generator(record: Record, points: Points) -> None:
    """Expects that the generator offered its load in every run and lost no datagram.

    Otherwise a run does not describe the server.
    """
    generators = [point["outcome"]["generator"] for point in points]
    slow = sum(generator["too_slow"] is not None for generator in generators)
    record.expect(slow == 0, f"the generator was too slow in {slow} of {len(generators)} runs")
    drops = sum(generator["drops"] for generator in generators)
    record.expect(drops == 0, f"the generator lost {drops} datagrams")


class Run:
    """The results of one scenario."""

    def __init__(
        self,
        record: Record,
        name: str,
        world: str = "sim",
        jobs: int | None = None,
        build: str = "release",
        **changed: str,
    ) -> None:
        """Runs the scenario in the world `world` with the `build` of the program, `release` or `debug`.

        `changed` has keys of the file, and the values that replace those of the file. Without `jobs`, `lab run` decides
        how many runs it makes at the same time.
        """
        text = (ROOT / "scenarios" / f"{name}.toml").read_text()
        for key, value in changed.items():
            text, count = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
            if count != 1:
                raise SystemExit(f"{name}: the file has the key `{key}` {count} times, not once")
        words = [name, *re.findall(r"\w+", str(changed)), *([] if world == "sim" else [world])]
        self.folder = record.directory / "-".join(words)
        self.folder.mkdir(parents=True)
        scenario = self.folder / f"{name}.toml"
        scenario.write_text(text)
        more = [] if jobs is None else ["--jobs", jobs]
        results = program.scenario(scenario, self.folder / "out", "--world", world, *more, profile=build)
        self.capacity_cps: float = results["capacity_cps"]
        self.points: Points = results["points"]

    def of(self, label: str, **swept: object) -> Points:
        """Returns the runs of the variant with this label and these swept values. Ends the script if there is none."""
        found = [
            point
            for point in self.points
            if point["variant"].startswith(f"{label} (")
            and all(point["swept"].get(key) == value for key, value in swept.items())
        ]
        if not found:
            raise SystemExit(f"there is no run of {label} with {swept}")
        return found
