"""Tests of the conditions on the costs of messages."""

import unittest
from typing import Any

from tidegate_bench.demonstrations.costs import CLAIMS, fraction, here, kernel_drop, recorded, swapped_gate


def run(t_a: float, t_d: float) -> dict[str, Any]:
    """Returns the result of a run with these costs of a message, in µs."""
    model = {"accepted_us": t_a, "dropped_us": t_d, "fraction": fraction(t_a, t_d)}
    return {"costs": {way: {"dropping": model} for way in ("cycle", "core")}}


class ClaimsTest(unittest.TestCase):
    def test_each_recorded_claim_is_judged(self) -> None:
        self.assertEqual({claim.name for claim in CLAIMS}, set(recorded()))


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


class KernelDropTest(unittest.TestCase):
    def test_the_drop_by_the_kernel_must_cost_less(self) -> None:
        def way(sender: float, reader: float) -> dict[str, Any]:
            return {"sender": {"median_us": sender}, "reader": {"median_us": reader}}

        # Sending includes the work of the kernel, so it costs more if the kernel drops the message.
        run = {"costs": {"gate": {"read": way(2, 1.5), "shed": way(3, 0)}}}
        seen = kernel_drop([run])
        self.assertTrue(seen.held)
        self.assertIn("3.50 µs if Tidegate reads the message, 3.00 if", seen.numbers)
        swapped_gate(run)
        self.assertFalse(kernel_drop([run]).held)
        run["costs"]["gate"]["shed"] = run["costs"]["gate"]["read"]
        self.assertFalse(kernel_drop([run]).held)


if __name__ == "__main__":
    unittest.main()
