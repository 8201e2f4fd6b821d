"""SIPp as caller and callee, and its statistics."""

import csv
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_bench.process import Process, Stage
from tidegate_bench.sockets import LOCALHOST, free_port

SCENARIOS = Path(__file__).resolve().parents[2] / "tests" / "sipp"

# SIPp's default buffer overflows at a burst of a few hundred datagrams, and its losses would be counted as those of the
# element.
_BUFFER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Calls:
    """The last line of SIPp's statistics file."""

    created: int
    successful: int
    failed: int
    unexpected: int
    """Calls that failed because of a message that the scenario does not expect at that place."""
    out_of_call: int
    """Messages that belong to no call."""
    retransmissions: int

    @property
    def clean(self) -> bool:
        """Returns whether every call succeeded, and no unexpected message arrived."""
        return self.successful == self.created and not (self.failed or self.unexpected or self.out_of_call)

    def __str__(self) -> str:
        return (
            f"{self.created} calls, {self.successful} successful, {self.failed} failed, "
            f"{self.unexpected} unexpected, {self.out_of_call} out of call, "
            f"{self.retransmissions} retransmissions"
        )


class Sipp:
    """One running SIPp."""

    def __init__(self, process: Process, port: int, statistics: Path) -> None:
        self.process = process
        self.port = port
        self._statistics = statistics

    def calls(self) -> Calls:
        """Returns the counts of SIPp, which are complete after its end."""
        with self._statistics.open(newline="") as file:
            rows = list(csv.DictReader(file, delimiter=";"))
        if not rows:
            return Calls(0, 0, 0, 0, 0, 0)
        last = rows[-1]
        return Calls(
            created=int(last["TotalCallCreated"]),
            successful=int(last["SuccessfulCall(C)"]),
            failed=int(last["FailedCall(C)"]),
            unexpected=int(last["FailedUnexpectedMessage(C)"]),
            out_of_call=int(last["OutOfCallMsgs(C)"]),
            retransmissions=int(last["Retransmissions(C)"]),
        )

    def response_times(self) -> list[tuple[float, float]]:
        """Returns the time of arrival and the delay of each response that SIPp's timer 1 measures.

        The time of arrival is that since the start. Both are in seconds. SIPp's clock has steps of some milliseconds.
        """
        return [(float(row["Date_ms"]) / 1e3, float(row["response_time_ms"]) / 1e3) for row in self._traced("rtt")]

    def counts(self) -> list[dict[str, float]]:
        """Returns the counts of messages in each second, such as `0_INVITE_Sent`, with the time `elapsed_s`."""
        rows = []
        for row in self._traced("counts"):
            hours, minutes, seconds, micros = row["ElapsedTime"].split(":")
            at = 3600 * int(hours) + 60 * int(minutes) + int(seconds) + int(micros) / 1e6
            numbers = {name: float(value) for name, value in row.items() if _is_count(name, value)}
            rows.append({"elapsed_s": at, **numbers})
        return rows

    def _traced(self, what: str) -> list[dict[str, str]]:
        [file] = self._statistics.parent.glob(f"*_{self.process.pid}_{what}.csv")
        with file.open(newline="") as lines:
            return list(csv.DictReader(lines, delimiter=";"))

    def finish(self, patience_s: float = 8.0) -> Calls:
        """Waits for the end of the open calls, ends SIPp, and returns its counts."""
        self.process.stop(signal.SIGUSR1, patience_s)
        return self.calls()


def callee(stage: Stage, name: str, scenario: str = "uas", tolerant: bool = False) -> Sipp:
    """Starts a SIPp that answers.

    The scenario `uas` is built in. Any other one is the name of a file in tests/sipp. If `tolerant`, SIPp ignores
    messages that the scenario does not expect.
    """
    port = free_port()
    process = stage.serve(name, command(stage, name, scenario, port, tolerant=tolerant), port)
    return made_by(stage, name, process, port)


def caller(
    stage: Stage,
    name: str,
    target: str,
    *,
    rate_cps: float,
    calls: int,
    scenario: str = "uac",
    hold_ms: int = 0,
    traced: bool = False,
    tolerant: bool = False,
    host: str = LOCALHOST,
    options: Sequence[str] = (),
) -> Sipp:
    """Starts a SIPp at `host` that makes `calls` calls, `rate_cps` a second, whatever their outcome.

    If `traced`, it also writes the files that `response_times` and `counts` read. If `tolerant`, it ignores messages
    that the scenario does not expect. `options` are further options of SIPp.
    """
    port = free_port()
    words = command(stage, name, scenario, port, host, tolerant)
    words += ["-r", str(rate_cps), "-m", str(calls), "-d", str(hold_ms)]
    # Without an explicit limit, SIPp holds back new calls when old ones are slow, and offers less than the requested
    # load.
    words += ["-l", str(calls)]
    if traced:
        words += ["-trace_rtt", "-rtt_freq", "1", "-trace_counts"]
    words += [*options, "-timeout", f"{calls / rate_cps + hold_ms / 1000 + 60:.0f}s", target]
    return made_by(stage, name, stage.serve(name, words, port), port)


def command(
    stage: Stage,
    name: str,
    scenario: str,
    port: int,
    host: str = LOCALHOST,
    tolerant: bool = False,
    options: Sequence[str] = (),
) -> list[str]:
    """Returns the command of a SIPp at an address.

    It writes its statistics to NAME.csv and its errors to NAME.errors in the scratch directory. `scenario` is built
    in (`uac` or `uas`), the name of a file in tests/sipp, or the path of another file (`….xml`).
    """
    _statistics(stage, name).unlink(missing_ok=True)
    file = scenario if scenario.endswith(".xml") else str(SCENARIOS / f"{scenario}.xml")
    source = ["-sn", scenario] if scenario in ("uac", "uas") else ["-sf", file]
    return [
        *("sipp", *source, "-nostdin", "-i", host, "-p", str(port)),
        *("-buff_size", str(_BUFFER_BYTES), "-max_socket", "1000"),
        *("-trace_stat", "-stf", str(_statistics(stage, name)), "-fd", "1"),
        *(("-default_behaviors", "all,-abortunexp") if tolerant else ()),
        *("-trace_err", "-error_file", str(stage.directory / f"{name}.errors"), *options),
    ]


def made_by(stage: Stage, name: str, process: Process, port: int) -> Sipp:
    """Returns the SIPp of a process that was started with the words of `command`."""
    return Sipp(process, port, _statistics(stage, name))


def _statistics(stage: Stage, name: str) -> Path:
    return stage.directory / f"{name}.csv"


def _is_count(name: str, value: str | None) -> bool:
    return name[:1].isdigit() and bool(value)
