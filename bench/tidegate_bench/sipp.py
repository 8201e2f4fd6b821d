"""SIPp as caller and callee, and what its statistics say."""

import csv
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tidegate_bench.process import Process, Stage
from tidegate_bench.sockets import LOCALHOST, free_port

SCENARIOS = Path(__file__).resolve().parents[2] / "tests" / "sipp"

# SIPp's own buffer overflows at a burst of a few hundred datagrams, and its losses would
# be taken for the element's.
_BUFFER_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class Calls:
    """The last line of SIPp's statistics file."""

    created: int
    successful: int
    failed: int
    unexpected: int
    """Failed for a message that the scenario does not expect at that place."""
    out_of_call: int
    """Messages that belong to no call."""
    retransmissions: int

    @property
    def clean(self) -> bool:
        """Every call that began ended well, and nothing came that should not."""
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
        """What it has counted; complete once it has ended."""
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
        """For each response of timer 1: when it came, since the start, and how long it took.

        In seconds, in steps of SIPp's own clock of some milliseconds.
        """
        return [(float(row["Date_ms"]) / 1e3, float(row["response_time_ms"]) / 1e3) for row in self._traced("rtt")]

    def counts(self) -> list[dict[str, float]]:
        """Once a second the messages so far, such as `0_INVITE_Sent`; `elapsed_s`: when."""
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
        """Lets the calls that are open end, ends SIPp, and returns what it counted."""
        self.process.stop(signal.SIGUSR1, patience_s)
        return self.calls()


def callee(stage: Stage, name: str, scenario: str = "uas", tolerant: bool = False) -> Sipp:
    """A SIPp that answers: `uas` is its built-in scenario, any other a file of ours.

    If it is `tolerant` it passes over messages that the scenario does not expect.
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
    scattered: bool = False,
    host: str = LOCALHOST,
    options: Sequence[str] = (),
) -> Sipp:
    """A SIPp at `host` that makes `calls` calls, `rate_cps` a second, whatever becomes of them.

    If it is `traced` it also writes what `response_times` and `counts` read; if it is
    `tolerant` it passes over messages that the scenario does not expect; if it is `scattered`
    each call has a port of its own, as if many clients made them. `options` are further ones of SIPp.
    """
    port = free_port()
    words = command(stage, name, scenario, port, host, tolerant)
    if scattered:
        words += ["-t", "un"]
    words += ["-r", str(rate_cps), "-m", str(calls), "-d", str(hold_ms)]
    # Without a limit of its own SIPp holds back new calls when the old ones are slow, and
    # the load offered is no longer the load asked for.
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
    """The command of a SIPp at an address, whose statistics and errors bear its name in the scratch directory.

    The scenario is a built-in one, the name of a file of ours, or the path of another.
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
    """The SIPp that a process runs by `command`."""
    return Sipp(process, port, _statistics(stage, name))


def _statistics(stage: Stage, name: str) -> Path:
    return stage.directory / f"{name}.csv"


def _is_count(name: str, value: str | None) -> bool:
    return name[:1].isdigit() and bool(value)
