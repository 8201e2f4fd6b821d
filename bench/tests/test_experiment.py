import json
import shutil
import unittest
from argparse import Namespace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from tests.scratch import Scratch
from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration
from tidegate_bench.demonstrations import farm, laws, outage, worlds
from tidegate_bench.experiment import Run, judge_generator


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
        missed = {"condition": "pi has at least 90 % of the bound: least 3 % at load 2", "held": False}
        self.conditions = [missed]
        self.assertEqual(program.scenario("a", self.folder / "one")["conditions"], [missed])
        self.conditions = [
            missed,
            {"condition": "the repetitions of pi, load 2 must differ, but all 3 are equal", "held": False},
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

    def test_generator_must_offer_every_load_and_lose_no_datagram(self) -> None:
        def judged(*generators: tuple[str | None, int]) -> list[bool]:
            record = Mock()
            runs = [{"outcome": {"generator": {"too_slow": slow, "drops": drops}}} for slow, drops in generators]
            judge_generator(record, runs)
            return [call.args[0] for call in record.expect.call_args_list]

        self.assertEqual(judged((None, 0), (None, 0)), [True, True])
        self.assertEqual(judged((None, 0), ("late by 2 s", 0)), [False, True])
        self.assertEqual(judged((None, 3), (None, 0)), [True, False])


class JudgedTest(Scratch):
    """A demonstration with results in which only the generator was too slow."""

    def conditions(self, show: type[Demonstration], results: dict[str, Any], **options: Any) -> list[str]:
        """Returns the conditions of the demonstration that are missed."""
        self.replace("tidegate_bench.record.ROOT", self.folder)
        self.replace("tidegate_bench.program.lab", lambda *_, **__: "")
        self.replace("tidegate_bench.program.scenario", lambda *_, **__: results)
        self.replace("tidegate_bench.table.show", lambda *_, **__: None)
        shown = show(show.__module__, Namespace(**options))
        shown.run()
        shown.finish()
        result = json.loads((shown.directory / "result.json").read_text())
        return [condition["condition"] for condition in result["conditions"] if not condition["held"]]

    def test_demonstrations_on_real_sockets_fail_if_the_generator_was_too_slow(self) -> None:
        generator = {"too_slow": "late by 2 s", "drops": 0, "caller_load": 1.0, "answerer_load": 0.1}

        def point(variant: str, **swept: float) -> dict[str, Any]:
            delay = {"set_up_delay": {"mean_us": 1000.0}}
            end = 0.1 if variant == "no control" else 1.0
            outage = {"emergency_in_time": 10, "emergency": 10, "backlog_s": 1, "recovered_s": 1, "goodput_end": end}
            outcome = {
                "generator": generator,
                "callers": [{"stats": {"measured": delay}}],
                "outage": {**outage, "registered_end": 1},
                "good": 1,
                "persons": 1,
                "persons_served": 1,
            }
            return {"variant": f"{variant} (arrival)", "swept": swept, "seed": 1, "outcome": outcome}

        spread = {"min": 1.0, "median": 1.0, "max": 1.0}
        row = {"variant": "pi", "load": 1.0, "goodput": spread, "p99_ms": spread, "generator_load": 1.0, "drops": 0}
        of_farm = [point(policy, pause_ms=0.0, load=0.5) for policy in farm.POLICIES]
        of_outage = [point(label) for label in outage.LABELS]
        slow = "the generator was too slow in {} of {} runs"
        for show, points, options, expected in (
            (farm.Show, of_farm, {"rounds": 5, "profile": "debug"}, slow.format(3, 3)),
            # In this test the runs in simulated time have the same results as the others.
            (outage.Show, of_outage, {"rounds": 3, "profile": "debug"}, slow.format(6, 6)),
            (worlds.Show, of_farm, {}, slow.format(3, 3)),
        ):
            results = {"capacity_cps": 600.0, "points": points, "rows": [{**row, "runs": 3}] * 48, "conditions": []}
            self.assertEqual(self.conditions(show, results, **options), [expected], show.__module__)

    def test_laws_are_judged_by_the_scenario_and_by_their_calls(self) -> None:
        missed = {"condition": "tide has at least 90 % of the bound: least 0 % at load 2", "held": False}
        failed = {"bye_timeout": 0, "bye_status": {}}
        outcome = {
            "callers": [{"stats": {"failed": failed}}],
            "answerers": {"not_acknowledged": 0, "byes_unanswered": 0},
        }

        def judged(goodput: float, *conditions: dict[str, Any]) -> list[str]:
            spread = dict.fromkeys(("min", "median", "max"), goodput)
            row = {"variant": "tide (arrival, class)", "load": 2.0, "bound": 0.9, "goodput": spread, "runs": 3}
            row |= dict.fromkeys(("retransmission_ratio", "p50_ms", "p99_ms", "rejected"), spread)
            row |= {"generator_load": 0.1, "drops": 0, "too_slow": 0}
            results = {"rows": [row], "points": [{"outcome": outcome}], "conditions": conditions}
            return self.conditions(laws.Show, results, rounds=3, world="real", laws=None)

        self.assertEqual(judged(0.85), [])
        shutil.rmtree(self.folder / "out")
        self.assertEqual(
            judged(0.0, missed),
            [missed["condition"], "at load 2 every law sets up calls, except ['tide (arrival, class)']"],
        )


if __name__ == "__main__":
    unittest.main()
