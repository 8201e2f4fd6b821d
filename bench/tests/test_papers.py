import unittest
from typing import Any
from unittest.mock import Mock

from tidegate_bench import paper_000, paper_001
from tidegate_bench.demonstrations import farm
from tidegate_bench.paper_000 import CLAIMED, Cell, Passed
from tidegate_bench.verdicts import Claim, Seen, judge_all


class ClaimsTest(unittest.TestCase):
    """Each rule accepts the paper's own numbers, and no others."""

    def accepted(self, claims: list[Claim[Any]], paper: Any) -> None:
        for claim in claims:
            seen = claim.judge(paper)
            self.assertEqual(seen.verdict, "reproduced", f"{claim.claim}: {seen.numbers}")

    def test_the_numbers_of_the_papers_are_reproduced(self) -> None:
        self.accepted(paper_000.CLAIMS, paper_000.PAPER)
        self.accepted(paper_000.FORMULA, [Passed(f, f**2, f**4) for f in (0.9, 0.5)])
        self.accepted(paper_001.CLAIMS, paper_001.PAPER)

    def test_where_every_law_is_like_basic_nothing_of_000_is_reproduced(self) -> None:
        calls = {
            (setting, place, law): paper_000.PAPER[setting, place, "basic"] for setting, place, law in paper_000.PAPER
        }
        verdicts = [claim.judge(calls).verdict for claim in paper_000.CLAIMS]
        self.assertNotIn("reproduced", verdicts)

    def test_a_wrong_number_of_one_law_costs_its_claims_the_verdict(self) -> None:
        for place, law, cps, delay in (
            (0, "aro", 2, 1),
            (0, "sired", 1, 0.1),
            (1, "sired", 0.5, 1),
            (1, "sired", 1, 3),
            (2, "sired", 1.2, 1),
            (3, "occupancy", 0.8, 1),
            (4, "occupancy", 0.5, 1),
            (4, "sired", 1, 2),
            (5, "occupancy", 1, 2),
        ):
            wrong = paper_000.planted(CLAIMED[place], law, cps, delay)(paper_000.PAPER)
            missed = [claim.claim for claim in paper_000.CLAIMS if claim.judge(wrong).verdict != "reproduced"]
            self.assertEqual(len(missed), 1, (place, law, cps, delay, missed))
        self.assertNotEqual(paper_000.products([Passed(0.5, 0.25, 0.125)]).verdict, "reproduced")

    def test_a_wrong_number_of_001_costs_its_claim_the_verdict(self) -> None:
        for change, claims in (
            (paper_001.times("pi 90 %", goodput=0.3), 2),
            (paper_001.times("pi 90 %", (2.09,), goodput=1.5), 1),
            (paper_001.times("occ 90 %", (1.57,), goodput=10), 1),
            (paper_001.times("ohta", (1.31,), goodput=5), 1),
            (paper_001.times("pi 80 %", (2.09,), repeated=0.2), 1),
            (paper_001.times("pi 80 %", (0.53,), delay_ms=3), 1),
            (paper_001.trace(occ_full_s=50), 1),
            (paper_001.trace(ohta_swing=100), 1),
            (paper_001.trace(pi_occupancy=0.72), 1),
        ):
            wrong = change(paper_001.PAPER)
            missed = [claim.claim for claim in paper_001.CLAIMS if claim.judge(wrong).verdict != "reproduced"]
            self.assertEqual(len(missed), claims, missed)

    def test_a_ratio_is_taken_seed_by_seed(self) -> None:
        calls = {
            ("bounded", CLAIMED[0], "basic"): Cell((100, 200), (1, 1)),
            ("bounded", CLAIMED[0], "aro"): Cell((50, 100), (2, 0)),
        }
        self.assertEqual(paper_000.ratio(calls, "bounded", CLAIMED[0], "aro", "cps"), (0.5, 0.5))


class FarmClaimsTest(unittest.TestCase):
    def test_every_claim_has_a_verdict_that_a_run_can_miss(self) -> None:
        for claim in farm.CLAIMS:
            self.assertIn(claim.expected, ("reproduced", "partly", "not"), claim.claim)

    def test_no_claim_is_cited_by_a_line_of_a_text_that_is_not_here(self) -> None:
        claims = [claim.claim for claim in farm.CLAIMS]
        claims += [claim.claim for claim in paper_000.CLAIMS] + [claim.claim for claim in paper_001.CLAIMS]
        for claim in claims:
            self.assertNotRegex(claim, r"\b00\d:", "section and figure of the paper instead")


class JudgeTest(unittest.TestCase):
    def judged(self, expected: str, planted: str) -> list[bool]:
        record = Mock()
        claim: Claim[str] = Claim("a", expected, lambda data: Seen(data, "1"), lambda _: planted, "fitted")
        rows = judge_all(record, [claim], "partly")
        self.assertEqual(rows, [{"claim": "a", "label": "fitted", "verdict": "partly", "numbers": "1"}])
        return [call.args[0] for call in record.expect.call_args_list]

    def test_a_verdict_is_a_condition_and_planted_numbers_must_change_it(self) -> None:
        self.assertEqual(self.judged("partly", "not"), [True, True])
        self.assertEqual(self.judged("reproduced", "not"), [False, True])
        self.assertEqual(self.judged("partly", "partly"), [True, False], "a rule that cannot fail")


if __name__ == "__main__":
    unittest.main()
