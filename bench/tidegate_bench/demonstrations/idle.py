"""8,000 idle TCP connections with keep-alives beside 500 calls/s: no call fails, and no connection ends

Phones register through Tidegate, each on a TCP connection of its own, and keep the connection open: they send two
empty lines every 25 s, and Tidegate answers with one (RFC 5626 §4.4.1). Beside them a caller makes calls over UDP. The
same calls are first made without the connections. The table shows what the connections cost: memory of Tidegate for
each, without the memory of the kernel, and processor time for each keep-alive.
"""

import argparse
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from tidegate_bench import table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.registrations import over_tcp
from tidegate_bench.sipp import Calls
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.table import Column
from tidegate_bench.tidegate import Edge, built

CONNECTIONS = 8_000
RATE_CPS = 500
KEEP_ALIVE_S = 25.0
# Two keep-alives on each connection.
SECONDS = 60.0
OPENED_PER_S = 2_000
# Bytes of user space for each connection.
BYTES_MAX = 4 * 1024


@dataclass(frozen=True)
class Run:
    """The calls of one round, with the connections beside them and without."""

    round: int
    calls: int
    failed: int
    failed_alone: int
    connections: int
    """Open at the end."""
    ended: int
    """Connections that ended before the phones closed them."""
    keep_alives: int
    """Keep-alives that Tidegate received during the calls."""
    answered: int
    cpu_us_per_call: float
    """CPU time of Tidegate during the calls, for each call."""
    cpu_us_per_call_alone: float
    cpu_us_per_keep_alive: float
    """Additional CPU time of Tidegate beside the connections, divided by the number of keep-alives."""
    bytes_per_connection: float


class Phones:
    """A running `tidegate load register` whose connections stay open."""

    def __init__(self, stage: Stage, target: str, edge: Edge, options: argparse.Namespace, round_: int) -> None:
        self._report = stage.directory / "phones.json"
        count = str(options.connections)
        command = [built("tidegate", options.profile), "load", "register", target, "--bind", f"{LOCALHOST}:0"]
        command += ["--transport", "tcp", "--connections", count, "--users", count, "--count", count]
        command += ["--rate", str(OPENED_PER_S), "--arrivals", "uniform", "--seed", str(round_)]
        command += ["--keep-alive", str(options.keep_alive), "--json", str(self._report)]
        self._process = stage.start("phones", command)
        deadline = time.monotonic() + options.connections / OPENED_PER_S + 30
        while edge.metrics().value("connections") < options.connections:
            if not self._process.running() or time.monotonic() > deadline:
                sys.exit(f"the phones did not connect:\n{self._process.tail()}")
            time.sleep(0.2)

    def finish(self) -> dict[str, Any]:
        """Ends the phones, and returns their report."""
        self._process.stop(signal.SIGINT)
        report: dict[str, Any] = json.loads(self._report.read_text())
        return report


def calls(stage: Stage, edge: Edge, options: argparse.Namespace, name: str, round_: int) -> tuple[Calls, float]:
    """Makes the calls. Returns their outcome, and the CPU time of Tidegate for each call, in µs."""
    count = round(options.rate * options.seconds)
    before_ns = edge.process.cpu_ns()
    caller = tidegate.caller(
        stage, name, edge.address, rate_cps=options.rate, calls=count, profile=options.profile, seed=round_
    )
    caller.end(options.seconds + 60)
    return caller.calls(), (edge.process.cpu_ns() - before_ns) / 1e3 / count


def measure(options: argparse.Namespace, round_: int) -> Run:
    """Makes the calls through a fresh Tidegate, first alone, then beside the connections."""
    with Stage() as stage:
        # The callee answers registrations too.
        callee = tidegate.callee(stage, "uas", options.profile)
        port = free_port()
        edge = tidegate.start(stage, [callee.port], options.profile, mode="transaction", tables=over_tcp(port))
        alone, us_alone = calls(stage, edge, options, "alone", round_)
        memory = edge.process.memory_bytes()
        phones = Phones(stage, f"{LOCALHOST}:{port}", edge, options, round_)
        before = edge.metrics()
        beside, us_beside = calls(stage, edge, options, "beside", round_)
        after = edge.metrics()
        # Memory is measured twice, each time after the same calls. So the memory for calls is the same.
        grown = edge.process.memory_bytes() - memory
        stats = phones.finish()["stats"]

    def passed(name: str) -> int:
        return after.total(name) - before.total(name)

    keep_alives = passed("stream_received")
    return Run(
        round=round_,
        calls=beside.created,
        failed=beside.failed,
        failed_alone=alone.failed,
        connections=round(after.value("connections")),
        ended=stats["connections_ended"],
        keep_alives=keep_alives,
        answered=passed("stream_sent"),
        cpu_us_per_call=us_beside,
        cpu_us_per_call_alone=us_alone,
        cpu_us_per_keep_alive=(us_beside - us_alone) * beside.created / max(keep_alives, 1),
        bytes_per_connection=grown / options.connections,
    )


COLUMNS = [
    Column("failed", "failed", 0, "sum"),
    Column("connections", "connections"),
    Column("ended", "ended", 0, "sum"),
    Column("keep-alives", "keep_alives"),
    Column("µs a call", "cpu_us_per_call", 1, "spread"),
    Column("µs a call alone", "cpu_us_per_call_alone", 1, "spread"),
    Column("µs a keep-alive", "cpu_us_per_keep_alive", 1),
    Column("bytes each", "bytes_per_connection", 0, "spread"),
]


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--connections", type=int, default=CONNECTIONS, help="(%(default)s)")
        parser.add_argument("--rate", type=float, default=RATE_CPS, help="calls/s (%(default)s)")
        parser.add_argument("--seconds", type=float, default=SECONDS, help="of calls (%(default)s)")
        parser.add_argument(
            "--keep-alive", type=float, default=KEEP_ALIVE_S, help="s between two keep-alives (%(default)s)"
        )

    def run(self) -> Results:
        runs = [measure(self.options, round_) for round_ in self.rounds]
        rows = self.rows("runs", [asdict(run) for run in runs])
        table.show(rows, COLUMNS, line=lambda row: f"{row['calls']:,} calls")
        for run in runs:
            self.expect(run.failed == 0, f"round {run.round}: {run.failed} of {run.calls:,} calls failed")
            kept = run.connections == self.options.connections and run.ended == 0
            self.expect(kept, f"  {run.connections:,} connections are open, {run.ended} ended early")
            # The first keep-alives come within the first interval, so one may be missing for each connection.
            least = run.connections * (int(self.options.seconds / self.options.keep_alive) - 1)
            answered = run.answered == run.keep_alives >= max(least, 1)
            self.expect(answered, f"  {run.answered:,} of {run.keep_alives:,} keep-alives were answered")
            each = run.bytes_per_connection
            self.expect(each <= BYTES_MAX, f"  {each:,.0f} bytes for each connection, of {BYTES_MAX:,}")
        return {"runs": rows}
