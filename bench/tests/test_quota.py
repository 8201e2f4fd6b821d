"""Tests of the costs that are calculated from runs far below the capacity."""

import unittest
from dataclasses import replace

from tidegate_bench.demonstrations.quota import Sample, costs_us


class CostsTest(unittest.TestCase):
    def test_costs_follow_from_runs_with_other_mixes(self) -> None:
        mixes = [(200.0, 1000.0, 900.0), (2000.0, 0.0, 500.0), (900.0, 4500.0, 2000.0), (900.0, 4500.0, 900.0)]
        samples = []
        for invites, others, wakes in mixes:
            cpu = (12 * invites + 8 * others + 5 * wakes) / 1e6
            samples.append(Sample(0.5, "poisson", others > 0, cpu, invites, others, wakes, in_time=1.0))
        for cost, expected in zip(costs_us(samples), (12, 8, 5), strict=True):
            self.assertAlmostEqual(cost, expected)
        # A run with a higher cost than the other runs imply changes the result.
        dearer = [*samples[:-1], replace(samples[-1], cpu=1.1 * samples[-1].cpu)]
        self.assertGreater(abs(costs_us(dearer)[2] - 5), 0.1)


if __name__ == "__main__":
    unittest.main()
