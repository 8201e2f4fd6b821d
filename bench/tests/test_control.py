import tomllib
import unittest
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

from tests.scratch import Scratch
from tidegate_bench import load, peak
from tidegate_bench.curve import Point
from tidegate_bench.demonstrations import default as shown
from tidegate_bench.demonstrations import farm
from tidegate_bench.load import Load, Outcome, Usage
from tidegate_bench.overload import Costs, Scenario, Variant, bound
from tidegate_bench.process import Process


def outcome(offered: float, good: float) -> Outcome:
    return Outcome(100, offered, good, 0.0, 0.0, 1.0, 2.0, False, Usage(0.1, 0.2, 0.1, 0.1, 0, 0, 0.1, 1.0, 10.0))


class BoundTest(unittest.TestCase):
    def test_is_the_load_up_to_the_capacity(self) -> None:
        self.assertEqual([bound(load, 0.1) for load in (0.5, 1.0)], [0.5, 1.0])

    def test_is_zero_where_rejecting_takes_the_whole_processor(self) -> None:
        self.assertAlmostEqual(bound(2, 0.1), 0.8 / 0.9)
        self.assertEqual(bound(10, 0.1), 0.0)
        self.assertEqual(bound(2, 1.0), 0.0)

    def test_is_the_load_that_the_costs_of_rejecting_leave(self) -> None:
        costs = Costs(offer_us=100, serve_us=733, reject_us=200)
        offered = 2 * costs.capacity_cps
        kept = bound(2, costs.ratio) * costs.capacity_cps
        self.assertAlmostEqual(kept * costs.call_s + (offered - kept) * costs.rejection_s, 1.0)


class VariantTest(unittest.TestCase):
    def test_tables_are_toml(self) -> None:
        read = tomllib.loads(Variant("pi", params={"t_q": 0.05}, disposal="drop", pad=512).tables())["overload"]
        self.assertEqual(
            (read["law"], read["disposal"], read["pad"], read["params"]), ("pi", "drop", 512, {"t_q": 0.05})
        )
        self.assertNotIn("pad", tomllib.loads(Variant("none").tables())["overload"])

    def test_scenario_of_the_repository_is_read(self) -> None:
        scenario = Scenario.read()
        self.assertEqual(round(scenario.costs.capacity_cps, -1), 200)
        self.assertIn("pi (arrival, class)", [variant.name for variant in scenario.variants])


class PointTest(unittest.TestCase):
    def test_goodput_is_a_part_of_capacity_and_bound(self) -> None:
        point = Point(1, "tidegate", Variant("pi"), 2.0, 100.0, 0.1, outcome(200, 80))
        self.assertEqual((point.goodput, point.name), (0.8, "tidegate pi (arrival, class)"))
        self.assertAlmostEqual(point.of_bound or 0, 0.9)
        self.assertEqual(point.row()["offered_cps"], 200)

    def test_there_is_no_part_of_a_bound_of_zero(self) -> None:
        self.assertIsNone(Point(1, "t", Variant("pi"), 20.0, 100.0, 0.1, outcome(2000, 1)).of_bound)


class PeakTest(Scratch):
    def climb(self, capacity: float, start: float) -> float:
        def offer(load: Load) -> Outcome:
            return outcome(load.rate_cps, min(load.rate_cps, capacity))

        return peak.climb(offer, start, seed=1)[0]

    def test_finds_the_capacity_to_six_percent(self) -> None:
        for capacity in (130.0, 1000.0, 5431.0):
            for start in (100.0, 900.0, 8000.0):
                found = self.climb(capacity, start)
                self.assertTrue(0.94 * capacity <= found <= 1.011 * capacity, (capacity, start, found))

    def test_rate_whose_calls_wait_is_not_the_peak(self) -> None:
        def offer(load: Load) -> Outcome:
            # The calls beyond the capacity wait: after 4 s at 1.1 times the capacity, calls wait for 0.4 s.
            wait_s = max(load.rate_cps / 1000.0 - 1, 0.0) * load.seconds
            in_time = outcome(load.rate_cps, load.rate_cps if wait_s < 0.5 else 0.0)
            return replace(in_time, p99_ms=1000 * wait_s)

        found = peak.climb(offer, 900.0, seed=1)[0]
        self.assertTrue(940.0 <= found <= 1030.0, found)

    def test_rate_without_calls_is_not_carried(self) -> None:
        self.assertFalse(peak.is_in_time(replace(outcome(100.0, 0.0), p99_ms=None)))

    def test_rate_carried_once_by_luck_is_not_the_peak(self) -> None:
        def offer(load: Load) -> Outcome:
            # The first seeds are those of the climb.
            capacity = 1500.0 if load.seed < 20 else 1000.0
            return outcome(load.rate_cps, min(load.rate_cps, capacity))

        found = peak.climb(offer, 500.0, seed=1)[0]
        self.assertTrue(900.0 <= found <= 1011.0, found)

    def test_rate_that_the_generator_does_not_offer_is_not_the_peak(self) -> None:
        def offer(load: Load) -> Outcome:
            # The generator offers at most 1,000 calls/s, and all of them are set up.
            offered = min(load.rate_cps, 1000.0)
            return replace(outcome(offered, offered), too_slow=offered < load.rate_cps)

        found = peak.climb(offer, 500.0, seed=1)[0]
        self.assertTrue(940.0 <= found <= 1000.0, found)
        told = r"the generator is too slow to offer 1\d\d\d calls/s, or loses messages, so the peak may be higher"
        self.assertRegex(self.printed, told)

    def test_run_with_a_slow_generator_is_repeated(self) -> None:
        seeds = set()

        def offer(load: Load) -> Outcome:
            is_first = load.seed not in seeds
            seeds.add(load.seed)
            return replace(outcome(load.rate_cps, min(load.rate_cps, 1000.0)), too_slow=is_first)

        found = peak.climb(offer, 500.0, seed=1)[0]
        self.assertTrue(940.0 <= found <= 1011.0, found)
        self.assertEqual(self.printed, "")

    def test_element_that_carries_nothing_is_an_error(self) -> None:
        with self.assertRaises(RuntimeError):
            self.climb(0.0, 100.0)


class RunTest(Scratch):
    def process(self, name: str, *command: str) -> Process:
        started = Process(name, list(command), self.folder / f"{name}.log")
        self.addCleanup(started.stop)
        return started

    def test_element_or_callee_that_ends_under_the_load_ends_the_script(self) -> None:
        def run(element: Process, callee: Process) -> None:
            load.run(lambda: self.process("uac", "true"), element, callee, Load(1.0, 0.0, 0.1, 1), Process.stop)

        alive = self.process("alive", "sleep", "60")
        ended = self.process("ended", "sh", "-c", "echo panicked; exit 1")
        run(alive, alive)
        for element, callee in ((ended, alive), (alive, ended)):
            with self.assertRaisesRegex(SystemExit, "ended ended under the load:\n    panicked"):
                run(element, callee)


class DefaultTest(unittest.TestCase):
    def missed(self, multiple: float, none: list[float], default: list[float]) -> list[str]:
        """Returns the conditions that are missed if the rounds of the two variants set up these parts of the calls."""
        trials = [
            shown.Trial(round_, multiple, 100.0, outcome(100.0, 100.0 * part), variant, 120.0)
            for variant, parts in (("none", none), ("default", default))
            for round_, part in enumerate(parts, 1)
        ]
        show = Mock()
        shown.Show.judge(show, trials)
        return [call.args[1] for call in show.expect.call_args_list if not call.args[0]]

    def test_collapse_without_control_in_one_round_does_not_excuse_the_others(self) -> None:
        for multiple in (0.5, 1.0):
            [told] = self.missed(multiple, [0.995, 0.99, 0.10], [0.15, 0.12, 0.20])
            self.assertIn("0.8450 below that of none, allowed are 0.0300", told)
            self.assertEqual(self.missed(multiple, [0.995, 0.99, 0.10], [0.99, 0.985, 0.98]), [])

    def test_the_default_may_set_up_fewer_calls_by_the_noise(self) -> None:
        self.assertEqual(self.missed(1.0, [0.99, 0.97, 0.99], [0.97, 0.955, 0.98]), [])
        self.assertEqual(len(self.missed(1.0, [0.99, 0.985, 0.99], [0.97, 0.965, 0.98])), 1)

    def test_goodput_beyond_the_peak_is_judged_by_the_capacity_at_the_time_of_the_run(self) -> None:
        # The peak is 100 calls/s, the capacity 120.
        [told] = self.missed(4.0, [], [1.0, 1.01, 1.03])
        self.assertIn("at 4.0 times the peak the default keeps 0.84 of the capacity", told)
        self.assertEqual(self.missed(4.0, [], [1.0, 1.03, 1.04]), [])

    def attempt(self, *outcomes: Outcome) -> shown.Attempt:
        show = Mock(profile="release", options=Mock(share=0.2, generator="tidegate"))
        with patch.object(shown, "compare", side_effect=[(each, 50.0) for each in outcomes]):
            return shown.Show.attempt(show, "default", Load(100.0, 1.0, 1.0, 1), 100.0)

    def test_a_load_is_offered_again_if_the_generator_failed(self) -> None:
        good = outcome(100.0, 90.0)
        slow, lossy = replace(good, too_slow=True), replace(good, own_losses=1)
        self.assertEqual(self.attempt(slow, lossy, good), shown.Attempt(good, 50.0, 3))
        self.assertEqual(self.attempt(slow, slow, slow, good), shown.Attempt(slow, 50.0, 3))

    def test_the_cost_of_a_call_is_measured_at_a_load_that_the_program_carries(self) -> None:
        # The peak was found in a fast second. Now the program carries half of it.
        def compare(_: str, offered: Load, *rest: Any) -> tuple[Outcome, float]:
            carried = outcome(offered.rate_cps, min(offered.rate_cps, 60.0))
            usage = replace(carried.usage, steady_cpu_s=0.01 * offered.rate_cps, steady_s=1.0)
            return replace(carried, usage=usage), 2_000.0

        show = Mock(profile="release", options=Mock(share=0.2), load=lambda cps, seed: Load(cps, 1.0, 1.0, seed))
        with patch.object(shown, "compare", compare):
            self.assertAlmostEqual(shown.Show.factors(show, {"none": 120.0}, 1)["none"], 5.0)


class FarmTest(unittest.TestCase):
    def test_two_worlds_differ_by_the_factor_of_their_means(self) -> None:
        sim = {("RR", 0.5): 10.0, ("RR", 0.9): 20.0}
        real = {("RR", 0.5): 5.0, ("RR", 0.9): 20.0}
        self.assertAlmostEqual(farm.apart(sim, real, max), 2.0)
        self.assertAlmostEqual(farm.apart(sim, real, min), 1.0)

    def test_the_mean_is_the_median_of_the_runs(self) -> None:
        def point(mean_us: float) -> dict[str, Any]:
            stats = {"measured": {"set_up_delay": {"mean_us": mean_us, "count": 1}}}
            return {"outcome": {"callers": [{"stats": stats}]}}

        self.assertEqual(farm.invite_ms([point(1000), point(9000), point(3000)]), 3.0)
