import json
import unittest
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from tests.scratch import Scratch
from tidegate_bench import program
from tidegate_bench.experiment import Run


class RunTest(Scratch):
    def setUp(self) -> None:
        super().setUp()
        self.started: list[tuple[Any, ...]] = []
        self.conditions: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []
        self.replace("tidegate_bench.experiment.ROOT", self.folder)
        self.replace("tidegate_bench.program.lab", self.lab)
        (self.folder / "scenarios").mkdir()
        (self.folder / "scenarios" / "a.toml").write_text('profile = "steps:0=1"\nrepetitions = 3\n')

    def lab(self, *arguments: Any, profile: str) -> str:
        self.started.append((*arguments, profile))
        out = Path(arguments[arguments.index("--out") + 1])
        out.mkdir(parents=True)
        results = {"capacity_cps": 100.0, "points": [], "conditions": self.conditions, "failed": self.failed}
        (out / "results.json").write_text(json.dumps(results))
        return ""

    def test_the_key_profile_of_a_scenario_is_changed_and_the_build_is_not(self) -> None:
        run = Run(Mock(directory=self.folder), "a", profile='"instant:10"', repetitions="5")
        text = (run.folder / "a.toml").read_text()
        self.assertEqual(text, 'profile = "instant:10"\nrepetitions = 5\n')
        self.assertEqual(self.started[0][-1], "release")

    def test_a_key_that_is_not_there_ends_the_script(self) -> None:
        with self.assertRaises(SystemExit):
            Run(Mock(directory=self.folder), "a", open_max="1")

    def test_equal_repetitions_end_the_script_and_other_missed_conditions_do_not(self) -> None:
        missed = {"condition": "pi has at least 90 % of the bound: least 3 % at 2", "held": False}
        self.conditions = [missed]
        self.assertEqual(program.scenario("a", self.folder / "one")["conditions"], [missed])
        self.conditions = [
            missed,
            {"condition": "the repetitions of pi, load 2 differ: all 3 are equal", "held": False},
        ]
        with self.assertRaises(SystemExit) as end:
            program.scenario("a", self.folder / "two")
        self.assertIn("all 3 are equal", str(end.exception))
        self.assertNotIn("bound", str(end.exception))

    def test_failed_run_ends_the_script(self) -> None:
        self.failed = [{"variant": "pi (arrival)", "swept": {"load": 2.0}, "seed": 2, "error": "the server ended"}]
        with self.assertRaises(SystemExit) as end:
            program.scenario("a", self.folder / "one")
        self.assertIn("a run of pi (arrival), {'load': 2.0} failed: the server ended", str(end.exception))


if __name__ == "__main__":
    unittest.main()
