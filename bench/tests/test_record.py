import csv
import json
import unittest
from math import inf

from tests.scratch import Scratch
from tidegate_bench.record import Record, Spread, quantile


class SpreadTest(unittest.TestCase):
    def test_has_minimum_median_and_maximum(self) -> None:
        self.assertEqual(Spread.of([3.0, 1.0, 2.0]), (1.0, 2.0, 3.0))
        self.assertEqual(Spread.of([4.0, 1.0]).median, 2.5)

    def test_text_rounds_to_digits(self) -> None:
        self.assertEqual(Spread(1.0, 2.25, 3.0).text(1).split(), ["1.0", "2.2", "3.0"])

    def test_spread_without_values_is_an_error(self) -> None:
        with self.assertRaises(ValueError):
            Spread.of([])


class QuantileTest(unittest.TestCase):
    def test_is_a_value_of_the_list(self) -> None:
        hundred = [float(n) for n in range(100, 0, -1)]
        self.assertEqual(quantile(hundred, 0.5), 50.0)
        self.assertEqual(quantile(hundred, 0.99), 99.0)
        self.assertEqual(quantile(hundred, 1.0), 100.0)

    def test_is_not_below_the_share_for_other_numbers_of_values(self) -> None:
        for count, found in ((1, 1.0), (3, 3.0), (20, 20.0), (150, 149.0), (1000, 990.0)):
            self.assertEqual(quantile(range(1, count + 1), 0.99), found)
        self.assertEqual(quantile([1.0, 2.0, 3.0], 0.5), 2.0)
        self.assertEqual(quantile([1.0, 2.0], 0.0), 1.0)

    def test_without_values_it_is_infinite(self) -> None:
        self.assertEqual(quantile([], 0.5), inf)


class RecordTest(Scratch):
    def setUp(self) -> None:
        super().setUp()
        self.replace("tidegate_bench.record.ROOT", self.folder)
        self.record = Record("show", "sample")

    def result(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.record.directory / "result.json").read_text())
        return found

    def test_is_a_directory_below_out_and_names_its_machine(self) -> None:
        self.assertEqual(self.record.directory.parent, self.folder / "out/show/sample")
        self.record.expect(True, "one and one is two")
        self.assertEqual(self.record.finish(), 0)
        self.assertGreaterEqual(self.record.machine["cores"], 1)
        self.assertEqual(self.result()["held"], True)

    def test_one_missed_condition_fails_it(self) -> None:
        self.assertTrue(self.record.expect(True, "one and one is two"))
        self.assertFalse(self.record.expect(False, "one and one is three"))
        self.assertEqual(self.record.finish(figure=3), 1)
        self.assertIn("  ok    one and one is two\n", self.printed)
        self.assertIn("  FAIL  one and one is three\n", self.printed)
        self.assertIn("1 of 2 conditions held", self.printed)
        self.assertEqual((self.result()["held"], self.result()["figure"]), (False, 3))

    def test_record_that_checked_nothing_fails(self) -> None:
        self.assertEqual(self.record.finish(), 1)
        self.assertEqual(self.result()["held"], False)
        self.assertIn("  FAIL  at least one condition is checked\n", self.printed)

    def test_record_that_has_nothing_to_check_says_so(self) -> None:
        self.record.expect_nothing("there is no law")
        self.assertEqual(self.record.finish(), 0)
        self.assertIn("nothing is expected: there is no law\n", self.printed)

    def test_rows_are_written_and_returned(self) -> None:
        rows = self.record.rows("runs", iter([{"round": 1, "calls": 7}, {"round": 2, "calls": 8}]))
        self.assertEqual([row["calls"] for row in rows], [7, 8])
        with (self.record.directory / "runs.csv").open(newline="") as file:
            self.assertEqual([row["calls"] for row in csv.DictReader(file)], ["7", "8"])

    def test_keeps_files_that_exist(self) -> None:
        (self.folder / "a.log").write_text("said")
        self.record.keep(self.folder / "a.log", self.folder / "b.log")
        self.assertEqual((self.record.directory / "a.log").read_text(), "said")
        self.assertFalse((self.record.directory / "b.log").exists())

    def test_files_of_a_round_do_not_replace_those_of_another(self) -> None:
        log = self.folder / "a.log"
        for round_ in (1, 2):
            log.write_text(f"round {round_}")
            self.record.keep(log, prefix=f"{round_}-")
        with self.assertRaises(FileExistsError):
            self.record.keep(log, prefix="1-")
        texts = [(self.record.directory / f"{round_}-a.log").read_text() for round_ in (1, 2)]
        self.assertEqual(texts, ["round 1", "round 2"])
