"""The generator `examples/flood`, which sends INVITEs, acknowledges their rejections, and does nothing else."""

import sys
from collections.abc import Sequence

from tidegate_bench.process import Stage
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.tidegate import built

# The part of its planned rate that a flood must have.
SENT_MIN = 0.95


class Flood:
    """One running flood of INVITEs. It acknowledges the rejections."""

    def __init__(
        self,
        stage: Stage,
        target: str,
        rate: int,
        seconds: float,
        profile: str,
        host: str = LOCALHOST,
        uri: str | None = None,
    ) -> None:
        command = [built("examples/flood", profile), "--target", target]
        command += ["--rate", str(rate), "--seconds", str(seconds), "--bind", host]
        command += ["--uri", uri] if uri else []
        self._process = stage.start("flood", command)

    def finish(self, patience_s: float) -> dict[str, float]:
        """Waits for the end of the flood and returns its figures by name."""
        if not self._process.wait(patience_s) or self._process.exit_status != 0:
            sys.exit(f"the flood failed:\n{self._process.tail()}")
        words = self._process.tail(1).split()
        return dict(zip(words[::2], map(float, words[1::2]), strict=True))


def judge_rate(record: Record, sent_cps: Sequence[float], rate_cps: float) -> None:
    """Expects that the flood nearly had its planned rate in every run. Otherwise a run describes a smaller flood."""
    least = min(sent_cps)
    record.expect(least >= SENT_MIN * rate_cps, f"the flood had at least {least:.0f} of {rate_cps:.0f} INVITEs/s")
