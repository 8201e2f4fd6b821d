import tomllib
import unittest
from dataclasses import replace
from unittest.mock import Mock

from tests.scratch import Scratch
from tidegate_bench import peak
from tidegate_bench.curve import Point
from tidegate_bench.farm import Farm, mean_ms, shares
from tidegate_bench.load import Load, Outcome, Usage
from tidegate_bench.overload import Costs, Scenario, Variant, bound
from tidegate_bench.verdicts import Verdicts, graded


def outcome(offered: float, good: float) -> Outcome:
    return Outcome(100, offered, good, 0.0, 0.0, 1.0, 2.0, False, Usage(0.1, 0.2, 0.1, 0.1, 0, 0, 0.1, 1.0, 10.0))


class BoundTest(unittest.TestCase):
    def test_is_the_load_up_to_the_capacity(self) -> None:
        self.assertEqual([bound(load, 0.1) for load in (0.5, 1.0)], [0.5, 1.0])

    def test_falls_to_nothing_where_disposal_takes_all(self) -> None:
        self.assertAlmostEqual(bound(2, 0.1), 0.8 / 0.9)
        self.assertEqual(bound(10, 0.1), 0.0)
        self.assertEqual(bound(2, 1.0), 0.0)

    def test_is_what_the_costs_leave(self) -> None:
        costs = Costs(offer_us=100, serve_us=733, refuse_us=200)
        offered = 2 * costs.capacity_cps
        kept = bound(2, costs.ratio) * costs.capacity_cps
        self.assertAlmostEqual(kept * costs.call_s + (offered - kept) * costs.refusal_s, 1.0)


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

    def test_where_nothing_can_be_kept_there_is_no_part_of_the_bound(self) -> None:
        self.assertIsNone(Point(1, "t", Variant("pi"), 20.0, 100.0, 0.1, outcome(2000, 1)).of_bound)


class PeakTest(unittest.TestCase):
    def climb(self, capacity: float, start: float) -> float:
        def offer(load: Load) -> Outcome:
            return outcome(load.rate_cps, min(load.rate_cps, capacity))

        return peak.climb(offer, start, seed=1)[0]

    def test_finds_the_capacity_to_six_percent(self) -> None:
        for capacity in (130.0, 1000.0, 5431.0):
            for start in (100.0, 900.0, 8000.0):
                found = self.climb(capacity, start)
                self.assertTrue(0.94 * capacity <= found <= 1.011 * capacity, (capacity, start, found))

    def test_rate_that_is_set_up_in_time_by_waiting_is_not_the_peak(self) -> None:
        def offer(load: Load) -> Outcome:
            # A queue grows by what exceeds the capacity: after 4 s at 1.1 times it, calls wait for .4 s.
            wait_s = max(load.rate_cps / 1000.0 - 1, 0.0) * load.seconds
            in_time = outcome(load.rate_cps, load.rate_cps if wait_s < 0.5 else 0.0)
            return replace(in_time, p99_ms=1000 * wait_s)

        found = peak.climb(offer, 900.0, seed=1)[0]
        self.assertTrue(940.0 <= found <= 1030.0, found)

    def test_rate_carried_once_by_luck_is_not_the_peak(self) -> None:
        def offer(load: Load) -> Outcome:
            # The first seeds are those of the climb.
            capacity = 1500.0 if load.seed < 20 else 1000.0
            return outcome(load.rate_cps, min(load.rate_cps, capacity))

        found = peak.climb(offer, 500.0, seed=1)[0]
        self.assertTrue(900.0 <= found <= 1011.0, found)

    def test_element_that_carries_nothing_is_an_error(self) -> None:
        with self.assertRaises(RuntimeError):
            self.climb(0.0, 100.0)


class VerdictsTest(Scratch):
    def test_graded(self) -> None:
        verdicts = [graded(whole, half) for whole, half in ((True, True), (False, True), (False, False))]
        self.assertEqual(verdicts, ["reproduced", "partly", "not"])

    def test_only_known_claims_are_conditions(self) -> None:
        record = Mock()
        verdicts = Verdicts(record)
        verdicts.say("a", "partly", "1", known=False)
        record.expect.assert_not_called()
        verdicts.say("b", "partly", "2", known=True)
        record.expect.assert_called_once_with(False, "partly: b: 2")
        self.assertEqual([one["claim"] for one in verdicts.all], ["a", "b"])


def row(load: float, handled: float, occupancy: list[int], label: str = "RR") -> dict[str, object]:
    run = {"scenario": "peak", "label": label, "load": load, "capacity_cps": 100.0, "handled": handled}
    return run | {"invite_ms": load * 10, "occupancy": occupancy}


class FarmTest(unittest.TestCase):
    def test_peak_is_the_highest_load_before_requests_are_lost(self) -> None:
        farm = Farm([row(0.5, 1.0, []), row(0.9, 0.99995, []), row(1.0, 0.9, []), row(1.1, 1.0, [])])
        self.assertEqual(farm.peak("peak", "RR"), 90.0)
        self.assertEqual(farm.median("peak", "RR", "invite_ms", load=0.9), 9.0)

    def test_tail_counts_all_runs_together(self) -> None:
        runs = [{**row(0.9, 1.0, counts), "scenario": "response"} for counts in ([90, 8], [80, 10, 12])]
        self.assertEqual([Farm(runs).tail("RR", part) for part in (0.5, 0.9, 1.0)], [0, 1, 2])

    def test_runs_that_are_not_there_end_the_script(self) -> None:
        with self.assertRaises(SystemExit):
            Farm([]).of("peak", "RR")

    def test_shares_and_means(self) -> None:
        nodes = [{"node": f"server-{n}", "received": {"invite": count}} for n, count in enumerate((1, 3))]
        self.assertEqual(shares({"nodes": [*nodes, {"node": "caller", "received": {}}]}), [0.25, 0.75])
        self.assertEqual(mean_ms({"mean_us": 1500.0, "count": 2}), 1.5)
        self.assertEqual(mean_ms({"mean_us": 0.0, "count": 0}), float("inf"))
