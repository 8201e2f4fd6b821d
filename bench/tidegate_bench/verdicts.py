"""What becomes of a paper's claims."""

from tidegate_bench.record import Record


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


def graded(whole: bool, half: bool) -> str:
    """The verdict on a claim of which all holds, or half."""
    return "reproduced" if whole else "partly" if half else "not"
