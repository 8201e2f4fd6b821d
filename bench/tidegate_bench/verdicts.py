"""What becomes of a paper's claims."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from tidegate_bench.record import Record

Data = TypeVar("Data")


class Verdicts:
    """What is said of each claim of the paper; those that are known to hold are conditions."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.all: list[dict[str, str]] = []

    def say(self, claim: str, verdict: str, numbers: str, *, known: bool) -> None:
        self.all.append({"claim": claim, "verdict": verdict, "numbers": numbers})
        text = f"{verdict}: {claim}: {numbers}"
        if known:
            self.record.expect(verdict == "reproduced", text)
        else:
            print(f"        {text}", flush=True)


class Seen(NamedTuple):
    """The verdict on a claim, and the numbers that decide it."""

    verdict: str
    numbers: str


class Claim(NamedTuple, Generic[Data]):
    """A claim of a paper, the verdict that is known of it, and numbers that must change the verdict."""

    claim: str
    expected: str
    judge: Callable[[Data], Seen]
    planted: Callable[[Data], Data]
    label: str = ""
    """`fitted` or `by construction`, if the conditions were chosen so that the claim holds."""


def judge_all(record: Record, claims: list[Claim[Data]], data: Data) -> list[dict[str, str]]:
    """Judges each claim by the data, and once more by planted numbers, which must change the verdict."""
    rows = []
    for claim in claims:
        seen = claim.judge(data)
        label = f" ({claim.label})" if claim.label else ""
        record.expect(seen.verdict == claim.expected, f"{seen.verdict}{label}: {claim.claim}: {seen.numbers}")
        planted = claim.judge(claim.planted(data))
        record.expect(
            planted.verdict != seen.verdict, f"another verdict by planted numbers: {planted.verdict}: {planted.numbers}"
        )
        rows.append({"claim": claim.claim, "label": claim.label, **seen._asdict()})
    return rows


def graded(whole: bool, half: bool) -> str:
    """The verdict on a claim of which all holds, or half."""
    return "reproduced" if whole else "partly" if half else "not"
