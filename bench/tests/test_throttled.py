"""Tests of the time for which a quota keeps a control group from running."""

from dataclasses import replace

from tests.scratch import Scratch
from tests.test_columns import outcome
from tidegate_bench.quota import Throttled


class ThrottledTest(Scratch):
    def test_both_versions_of_control_groups_are_read(self) -> None:
        first = "nr_periods 200\nnr_throttled 150\nthrottled_time 600000000\n"
        second = (
            "usage_usec 900000\nuser_usec 500000\nsystem_usec 400000\n"
            "nr_periods 200\nnr_throttled 150\nthrottled_usec 600000\n"
        )
        for text in (first, second):
            file = self.folder / "cpu.stat"
            file.write_text(text)
            self.assertEqual(Throttled.read(file), Throttled(200, 150, 0.6))

    def test_a_row_has_the_same_columns_with_and_without_a_quota(self) -> None:
        without = outcome(80).row()
        limited = replace(outcome(80), throttled=Throttled(200, 150, 0.6)).row()
        self.assertEqual(list(without), list(limited))
        names = ("quota_periods", "throttled_periods", "throttled_s")
        self.assertEqual([limited[name] for name in names], [200, 150, 0.6])
        self.assertEqual([without[name] for name in names], [None] * 3)
        self.assertNotIn("throttled", limited)
