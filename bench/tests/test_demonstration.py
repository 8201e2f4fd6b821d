import argparse
import contextlib
import inspect
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import time
import tomllib
import unittest
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest.mock import MagicMock, Mock, patch

from tests.scratch import Scratch
from tests.test_control import outcome
from tidegate_bench import command, feedback, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.demonstrations import nat, obedient, planted, pushback, receiver, reload, shares, sipp, strangers
from tidegate_bench.demonstrations.laws import only
from tidegate_bench.record import ROOT
from tidegate_bench.tools import replay_across


class Sample(Demonstration):
    PROFILE = "release"
    prepared = False

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--calls", type=int, default=10)

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        cls.prepared = True

    def run(self) -> Results:
        self.expect(self.options.calls == 10, f"{self.options.calls} calls in the {self.profile} build")
        return {"rounds": list(self.rounds)}


class DemonstrationTest(Scratch):
    def setUp(self) -> None:
        super().setUp()
        self.replace("tidegate_bench.record.ROOT", self.folder)

    def start(self, *arguments: str) -> tuple[int, dict[str, object]]:
        status = Sample.main("sample", "It holds\n\nAnd why.", list(arguments))
        [file] = self.folder.glob("out/show/sample/*/result.json")
        return status, json.loads(file.read_text())

    def test_runs_three_rounds_with_their_numbers_as_seeds(self) -> None:
        status, result = self.start()
        self.assertEqual((status, result["rounds"]), (0, [1, 2, 3]))
        self.assertTrue(Sample.prepared)

    def test_options_are_taken_and_recorded(self) -> None:
        status, result = self.start("--seeds", "1", "--profile", "debug")
        self.assertEqual((status, result["rounds"]), (0, [1]))
        self.assertEqual(result["options"], {"rounds": 1, "profile": "debug", "calls": 10})
        self.assertIn("10 calls in the debug build", self.printed)

    def test_missed_expectation_is_exit_status_1(self) -> None:
        self.assertEqual(self.start("--calls", "11")[0], 1)

    def test_wrong_options_end_before_anything_is_recorded(self) -> None:
        for wrong in (["--wrong"], ["--rounds", "0"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                Sample.main("sample", "It holds", wrong)
            self.assertEqual(ended.exception.code, 2)
        self.assertFalse((self.folder / "out").exists())

    def test_replay_across_needs_a_run(self) -> None:
        for wrong in (["--case", "no such run"], ["--rounds", "0"]):
            with self.assertRaises(SystemExit) as ended, contextlib.redirect_stderr(io.StringIO()):
                replay_across.main(["/bin/true", "/bin/true", *wrong])
            self.assertEqual(ended.exception.code, 2)

    def test_help_has_the_claim_and_its_explanation(self) -> None:
        with self.assertRaises(SystemExit) as ended:
            Sample.main("sample", "It holds\n\nAnd why.", ["--help"])
        self.assertEqual(ended.exception.code, 0)
        self.assertIn("show-sample", self.printed)
        self.assertIn("It holds\n", self.printed)
        self.assertIn("And why.", self.printed)


class CommandTest(Scratch):
    def names(self) -> list[str]:
        return [name for name, _ in command.demonstrations()]

    def test_each_demonstration_has_its_link(self) -> None:
        links = {path.name.removeprefix("show-") for path in (ROOT / "scripts").glob("show-*")}
        self.assertEqual(links, set(self.names()))

    def test_each_link_leads_to_the_command(self) -> None:
        links = [path for folder in ("scripts", "bench") for path in (ROOT / folder).iterdir() if path.is_symlink()]
        self.assertGreater(len(links), 50)
        for link in links:
            self.assertEqual(link.resolve(), ROOT / "bench/command")

    def test_each_demonstration_has_one_line_as_its_claim(self) -> None:
        for name, claim in command.demonstrations():
            self.assertTrue(20 < len(claim) <= 110, f"{name}: {claim}")

    def test_each_demonstration_has_a_row_in_the_documentation(self) -> None:
        page = (ROOT / "docs/shows.md").read_text()
        self.assertEqual(set(re.findall(r"^\| `make show-([a-z]+)`", page, re.M)), set(self.names()))

    def test_make_builds_the_release_programs_of_each_demonstration_that_runs_them(self) -> None:
        """Checks that no demonstration measures an older release program under the present commit."""
        needing = 0
        for name in self.names():
            module = import_module(f"tidegate_bench.demonstrations.{name}")
            if module.Show.PROFILE != "release" and '"release"' not in inspect.getsource(module):
                continue
            needing += 1
            # An outer make hands down its own options and variables.
            environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
            recipes = subprocess.run(
                ["make", "-n", "CARGO=cargo", "PGO=", f"show-{name}"],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            self.assertIn("cargo build --release", recipes, name)
        self.assertGreater(needing, 15)

    def test_show_lists_all(self) -> None:
        self.assertEqual(command.main("show", []), 0)
        self.assertEqual(self.printed.count("make show-"), len(self.names()))

    def test_tool_without_options_prints_its_documentation(self) -> None:
        self.assertEqual(command.main("structure", ["--help"]), 0)
        self.assertIn("scripts/structure --check", self.printed)

    def test_a_scenario_keeps_the_chosen_laws_and_what_is_expected_of_them(self) -> None:
        scenario = (ROOT / "scenarios/laws.toml").read_text()
        kept = tomllib.loads(only(scenario, ["pi", "none"]))
        self.assertEqual([variant["overload"]["law"] for variant in kept["variant"]], ["none", "pi"])
        self.assertEqual([expected["variant"] for expected in kept["expect"]], ["pi (arrival, class)"])
        self.assertEqual(kept["sweep"], tomllib.loads(scenario)["sweep"])


class PushbackTest(Scratch):
    def chosen(self, *arguments: str) -> argparse.Namespace:
        parser = argparse.ArgumentParser()
        pushback.Show.arguments(parser)
        options = parser.parse_args(arguments)
        pushback.Show.prepare(options)
        return options

    def test_options_win_over_the_quick_choice(self) -> None:
        options = self.chosen("--quick", "--variants", "rate-occ", "--loads", "8")
        self.assertEqual((options.variants, options.loads, options.seconds), (["rate-occ"], [8.0], 5.0))

    def test_without_options_the_choice_is_complete(self) -> None:
        self.assertEqual(self.chosen().variants, list(pushback.VARIANTS))
        self.assertEqual(self.chosen("--quick").loads, [2.0, 8.0])

    def missed(self, **changed: float) -> list[str]:
        """Returns the conditions that are missed in a run with these values."""

        def one(_show: pushback.Show, seed: int, load: float, variant: str) -> dict[str, Any]:
            goodput = 0.995 if variant == "loss" else 0.5
            row = {"seed": seed, "variant": variant, "load": load, "goodput": goodput, "p99_ms": 1.0, "jain": 1.0}
            row |= {"bound_alone": 0.5, "simulated": None, "held_by_senders": 0, "rejected_by_receiver": 0}
            row |= {"too_slow": 0, "generator_lost": 0, "ended": 1.0, "late_p99_ms": 0.1}
            return row | changed

        self.replace("tidegate_bench.record.ROOT", self.folder)
        self.replace("tidegate_bench.demonstrations.pushback.one", one)
        options = self.chosen("--quick", "--variants", "loss", "local only", "--loads", "8", "--jobs", "1")
        options.rounds = 2
        return self.failures(pushback.Show("pushback", options).run)

    def test_failures_of_the_generator_are_told(self) -> None:
        self.assertEqual(self.missed(), [])
        shutil.rmtree(self.folder / "out")
        self.assertEqual(self.missed(too_slow=1), ["a caller was too slow in 4 of 4 runs"])
        shutil.rmtree(self.folder / "out")
        self.assertEqual(self.missed(generator_lost=2), ["a caller or the callee lost datagrams in 4 of 4 runs"])

    def test_feedback_must_keep_nearly_the_whole_capacity(self) -> None:
        [full, _] = self.missed(goodput=0.985)
        self.assertEqual(full, "with loss at load 8 the mean goodput is 0.9850, at least 0.99")

    def test_a_run_without_calls_has_no_delay(self) -> None:
        def calls(count: int, p99_us: int) -> dict[str, Any]:
            return {"set_up_delay": {"count": count, "p99_us": p99_us}}

        self.assertEqual(pushback.longest_ms([calls(0, 0), calls(5, 1500), calls(3, 900)]), 1.5)
        self.assertIsNone(pushback.longest_ms([calls(0, 0), calls(0, 0)]))


class ObedientTest(Scratch):
    def missed(self, ours: float, theirs: float) -> list[str]:
        """Returns the conditions that are missed if the two sources set up these parts of the capacity."""

        def one(_show: obedient.Show, round_: int, load: float, mode: str, known: str, fairness: str) -> dict[str, Any]:
            row = {"round": round_, "load": load, "mode": mode, "stranger": known, "fairness": fairness}
            row |= {"obedient_cps": 72 * ours, "stranger_cps": 72 * theirs, "both": ours + theirs}
            row |= {"ratio": ours / theirs if theirs else None, "held": 0, "rejected_by_receiver": 0}
            return row | {"stranger_repeated": 0.0, "sent_part": 1.0, "drops": 0}

        self.replace("tidegate_bench.record.ROOT", self.folder)
        self.replace("tidegate_bench.demonstrations.obedient.one", one)
        options = argparse.Namespace(rounds=1, loads=[4.0], jobs=1)
        missed = self.failures(obedient.Show("obedient", options).run)
        shutil.rmtree(self.folder / "out")
        return missed

    def test_two_sources_without_a_call_are_not_equal(self) -> None:
        self.assertEqual(self.missed(0.7, 0.2), [])
        # At four times the capacity the receiver needs 8.6 % of its time to reject.
        for ours, theirs, part in ((0.0, 0.0, "0.000"), (0.8, 0.0, "0.875")):
            missed = self.missed(ours, theirs)
            self.assertEqual(len(missed), 8)
            self.assertEqual(
                missed[0], f"transaction, stranger a peer, provider: both set up at least {part} of the bound"
            )


class ComparedCallersTest(Scratch):
    def missed(self, goodput_cps: float) -> list[str]:
        """Returns the conditions that are missed if each law has this goodput with each caller."""
        self.replace("tidegate_bench.record.ROOT", self.folder)
        found = Mock(return_value=(outcome(400.0, goodput_cps), Mock()))
        self.replace("tidegate_bench.demonstrations.sipp.trial", found)
        options = argparse.Namespace(rounds=1, scenario="overload-local", warm_up=3.0, seconds=8.0)
        missed = self.failures(sipp.Show("sipp", options).run)
        shutil.rmtree(self.folder / "out")
        return missed

    def test_two_callers_without_a_call_are_not_equal(self) -> None:
        self.assertEqual(self.missed(170.0), [])
        self.assertEqual(self.missed(0.0), ["with the best law each caller sets up at least 0.00 of the bound"])


class SharesTest(unittest.TestCase):
    def test_senders_share_equally_or_by_their_loads(self) -> None:
        self.assertEqual(shares.ideal([0.57, 0.0, 0.0], "provider"), [0.57, 0.0, 0.0])
        self.assertEqual(shares.ideal([0.2, 3.0, 1.0], "provider"), [0.2, 0.4, 0.4])
        self.assertEqual(shares.ideal([0.5, 2.0, 0.0], "user"), [0.2, 0.8, 0.0])
        self.assertEqual((feedback.jain([0.4, 0.4]), feedback.jain([1.0, 0.0]), feedback.jain([1.0])), (1.0, 0.5, None))


class ReceiverTest(unittest.TestCase):
    def test_goodput_is_back_with_the_first_full_second(self) -> None:
        course = receiver.Course([12.3 + call / 72 for call in range(500)])
        # The calls begin at 12.3, so the second from 12.2 to 13.2 has 0.9 of its calls.
        self.assertEqual(course.recovered_s(returned=10.9, end=18.0), 1.3)
        self.assertIsNone(receiver.Course([11.0]).recovered_s(returned=10.9, end=18.0))


class ReloadTest(Scratch):
    def test_reload_that_is_not_applied_ends_the_script(self) -> None:
        answer = MagicMock()
        self.replace("urllib.request.urlopen", Mock(return_value=answer))
        edge = tidegate.Edge(5060, 9090, self.folder / "tidegate.toml")
        for status in (200, 202):
            answer.__enter__.return_value.status = status
            with self.assertRaises(SystemExit) if status == 202 else contextlib.nullcontext():
                reload.reload(edge)

    def test_back_ends_of_the_configuration_before_are_noticed(self) -> None:
        self.replace("tidegate_bench.demonstrations.reload.BACKENDS", 20)
        for pools in (1, 2):
            configurations = reload.Configurations("", 5070, pools, seed=1)
            before, text = configurations.backends(), configurations.text()
            self.assertEqual(len({pool for pool, _ in before}), pools)
            self.assertEqual(
                {backend["uri"] for pool in tomllib.loads(text)["pool"] for backend in pool["backend"]},
                {f"sip:{address}" for _, address in before},
            )
            configurations.next()
            after = configurations.backends()
            self.assertEqual((len(after), len(before & after) < len(after)), (20, True))
            self.assertEqual(reload.configured(self.shown(before | after, before - after)), after)
            self.assertNotEqual(reload.configured(self.shown(before, set())), after)

    @staticmethod
    def shown(backends: reload.Backends, removed: reload.Backends) -> tidegate.Metrics:
        """Returns the metrics of these back ends, of which some are removed."""
        lines = (
            f'tidegate_backend_state{{pool="{pool}",backend="{address}",state="{state}"}} '
            f"{int((state == 'removed') == ((pool, address) in removed))}"
            for pool, address in backends
            for state in ("up", "removed")
        )
        return tidegate.Metrics("\n".join(lines))


class WatchTest(Scratch):
    def watch(self, metrics: Mock) -> strangers.Watch:
        process = Mock(resident_bytes=Mock(return_value=5))
        return strangers.Watch(Mock(process=process, metrics=metrics))

    def shown(self, *up: int) -> Mock:
        return Mock(samples=lambda name: up if name == "backend_up" else ())

    def until(self, is_over: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not is_over():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_back_ends_without_calls_are_counted(self) -> None:
        watch = self.watch(Mock(side_effect=[self.shown(1, 1), self.shown(0, 1), *[self.shown(1, 1)] * 100]))
        self.until(lambda: watch.excluded_max == 1)
        watch.close()
        self.assertEqual(watch.resident_max, 5)

    def test_watch_that_ends_early_is_an_error(self) -> None:
        metrics = Mock(side_effect=[self.shown(1), TimeoutError("no answer in 5 s")])
        watch = self.watch(metrics)
        self.until(lambda: metrics.call_count == 2)
        with self.assertRaisesRegex(RuntimeError, "early, after 1 looks: no answer in 5 s"):
            watch.close()

    def test_watch_without_a_look_is_an_error(self) -> None:
        watch = self.watch(Mock(return_value=self.shown(1)))
        with self.assertRaisesRegex(RuntimeError, "never watched"):
            watch.close()


class StrangersTest(unittest.TestCase):
    def test_attack_without_an_effect_is_missed(self) -> None:
        def missed(effect: int) -> list[str]:
            record = Mock()
            row = {"attack": "forged-icmp", "honest": 190, "lost": 0, "excluded": 0, "effect": effect}
            strangers.judge(record, {**row, "reached": None, "reached_max": None})
            return [call.args[1] for call in record.expect.call_args_list if not call.args[0]]

        self.assertEqual(missed(100), [])
        self.assertEqual(missed(0), ["forged-icmp: icmp_reports_total counts the attack: 0"])

    def test_each_attack_has_a_counter_of_its_own_messages(self) -> None:
        text = 'tidegate_replies_total{shard="0",status="100",reason="none"} 190\n'
        text += 'tidegate_replies_total{shard="0",status="400",reason="malformed"} 12\n'
        text += 'tidegate_backend_responses_total{pool="app",backend="b",method="other",status="4xx"} 7\n'
        text += 'tidegate_backend_responses_total{pool="theirs",backend="c",method="other",status="4xx"} 5\n'
        shown = tidegate.Metrics(text)
        effects = {name: attack.effect(shown) for name, attack in strangers.ATTACKS.items()}
        self.assertEqual(
            {name: effect for name, effect in effects.items() if effect}, {"dropped-by-kamailio": 12, "forged-bye": 5}
        )


class NatTest(unittest.TestCase):
    def test_only_listeners_at_one_address_change_places(self) -> None:
        configurations = (nat.REGISTERED_CONFIGURATION, nat.moved(nat.REGISTERED_CONFIGURATION))
        before, after = ([listen["transport"] for listen in self.listeners(text)] for text in configurations)
        self.assertEqual((before, after), (["udp", "tcp", "tls"], ["tcp", "udp", "tls"]))
        self.assertEqual(nat.moved(configurations[1]), configurations[0])

    @staticmethod
    def listeners(text: str) -> list[dict[str, str]]:
        listeners: list[dict[str, str]] = tomllib.loads(text.replace("CERTIFICATE", ""))["listen"]
        return listeners

    def test_each_event_has_an_outcome_for_known_phones(self) -> None:
        for event, outcomes in nat.EXPECTED.items():
            self.assertLessEqual(outcomes.keys(), nat.ACCOUNTS.keys(), event)


class PlantedTest(Scratch):
    def setUp(self) -> None:
        super().setUp()
        self.replace("tidegate_bench.record.ROOT", self.folder)
        self.replace("tidegate_bench.demonstrations.planted.PATCHES", self.folder)
        self.replace("tidegate_bench.demonstrations.planted.checkout", lambda: self.folder)
        self.replace("tidegate_bench.demonstrations.planted.git", lambda *_, **__: None)
        self.replace("tidegate_bench.demonstrations.planted.build", lambda source: source)
        self.replace("tidegate_bench.demonstrations.planted.hunt", lambda *_: {"calls": {"seed": 1, "what": "lost"}})
        for name in ("one", "two"):
            (self.folder / f"{name}.patch").write_text(f"Checker: calls\nFault {name}.\n\n")

    def test_only_the_named_faults_are_planted(self) -> None:
        for arguments, count in ((["two"], 1), ([], 2)):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            self.assertEqual(planted.Show.main("planted", "It holds", arguments), 0)
            self.assertIn(f"{count} faults were planted", self.printed)

    def test_relative_target_folder_is_in_this_checkout(self) -> None:
        """Checks that a relative target folder is in the checkout, and not in the copy in which cargo runs."""
        with patch.dict(os.environ, CARGO_TARGET_DIR="out/target"):
            module = runpy.run_path(planted.__file__)
        self.assertEqual(module["SCRATCH"], self.folder / "out/target/planted")

    def test_unknown_fault_ends_it(self) -> None:
        with self.assertRaises(SystemExit) as ended:
            planted.Show.main("planted", "It holds", ["one", "three"])
        self.assertEqual(ended.exception.code, "no fault three: there are one, two")
