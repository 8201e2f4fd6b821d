"""Tests of the conditions on the costs of messages."""

import unittest
from typing import Any

from tidegate_bench.demonstrations.costs import fraction, here


def run(t_a: float, t_d: float) -> dict[str, Any]:
    """Returns the result of a run with these costs of a message, in µs."""
    model = {"accepted_us": t_a, "dropped_us": t_d, "fraction": fraction(t_a, t_d)}
    return {"costs": {way: {"dropping": model} for way in ("cycle", "core")}}


class HereTest(unittest.TestCase):
    def test_f_is_that_of_the_two_medians(self) -> None:
        # The f of the runs are .64, .56 and .84, and their median is .64.
        runs = [run(10, 2), run(7, 1), run(5, 3)]
        seen = here(runs)
        self.assertTrue(seen.held)
        self.assertTrue(seen.numbers.startswith("t_a 7.00 and t_d 2.00 µs: f 0.72, delay / 1.25"), seen.numbers)

    def test_an_f_that_does_not_follow_from_the_costs_is_wrong(self) -> None:
        runs = [run(10, 2), run(7, 1)]
        runs[1]["costs"]["core"]["dropping"]["fraction"] += 0.01
        self.assertFalse(here(runs).held)


if __name__ == "__main__":
    unittest.main()
