"""Up to 8,000 idle TCP or TLS connections beside 500 calls/s: no call fails, and no connection ends

Phones register through Tidegate, each on a connection of its own, and keep the connection open: they send two empty
lines every 25 s, and Tidegate answers with one (RFC 5626 §4.4.1). Beside them a caller makes calls over UDP. The same
calls are first made without the connections. This is done for each transport with 2,000 and with 8,000 connections.
The table shows what the connections cost: memory of Tidegate for each, without the memory of the kernel, processor
time for keep-alives, and the set-up delay of the calls.
"""

import argparse
import itertools
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidegate_bench import access, table, tidegate
from tidegate_bench.access import Certificate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.registrations import over_tcp
from tidegate_bench.sipp import Calls
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.table import Column
from tidegate_bench.tidegate import Edge, built

TRANSPORTS = ("tcp", "tls")
CONNECTIONS = (2_000, 8_000)
RATE_CPS = 500
KEEP_ALIVE_S = 25.0
# Two keep-alives on each connection.
SECONDS = 60.0
# A handshake of TLS takes more CPU time than the opening of a TCP connection.
OPENED_PER_S = {"tcp": 2_000, "tls": 500}
# Bytes of user space for each connection.
BYTES_MAX = {"tcp": 4 * 1024, "tls": 64 * 1024}


@dataclass(frozen=True)
class Run:
    """The calls of one round, with the connections beside them and without."""

    round: int
    transport: str
    offered: int
    """Connections that the phones open."""
    calls: int
    failed: int
    failed_alone: int
    connections: int
    """Connections that are open at the end."""
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
    cores_for_keep_alives: float
    """Additional CPU time of Tidegate beside the connections, for each second."""
    setup_p99_ms: float
    setup_p99_ms_alone: float
    bytes_per_connection: float


@dataclass(frozen=True)
class Case:
    """The round, and the connections beside the calls."""

    round: int
    transport: str
    connections: int


@dataclass(frozen=True)
class Made:
    """The outcome of calls, and their cost."""

    calls: Calls
    cpu_us: float
    """CPU time of Tidegate for each call."""
    setup_p99_ms: float


class Phones:
    """A running `tidegate load register` whose connections stay open."""

    def __init__(
        self, stage: Stage, edge: Edge, options: argparse.Namespace, case: "Case", port: int, authority: Path
    ) -> None:
        self._report = stage.directory / "phones.json"
        count, opened_per_s = str(case.connections), OPENED_PER_S[case.transport]
        command = [built("tidegate", options.profile), "load", "register", f"{LOCALHOST}:{port}"]
        command += ["--bind", f"{LOCALHOST}:0", "--transport", case.transport, "--connections", count]
        command += ["--ca", str(authority)] if case.transport == "tls" else []
        command += ["--users", count, "--count", count]
        command += ["--rate", str(opened_per_s), "--arrivals", "uniform", "--seed", str(case.round)]
        command += ["--keep-alive", str(options.keep_alive), "--json", str(self._report)]
        self._process = stage.start("phones", command)
        deadline = time.monotonic() + case.connections / opened_per_s + 30
        while edge.metrics().value("connections") < case.connections:
            if not self._process.running() or time.monotonic() > deadline:
                sys.exit(f"the phones did not connect:\n{self._process.tail()}")
            time.sleep(0.2)

    def finish(self) -> dict[str, Any]:
        """Ends the phones, and returns their report."""
        self._process.stop(signal.SIGINT)
        report: dict[str, Any] = json.loads(self._report.read_text())
        return report


def calls(stage: Stage, edge: Edge, options: argparse.Namespace, name: str, round_: int) -> Made:
    """Makes the calls."""
    count = round(options.rate * options.seconds)
    before_ns = edge.process.cpu_ns()
    caller = tidegate.caller(
        stage, name, edge.address, rate_cps=options.rate, calls=count, profile=options.profile, seed=round_
    )
    caller.end(options.seconds + 60)
    cpu_us = (edge.process.cpu_ns() - before_ns) / 1e3 / count
    return Made(caller.calls(), cpu_us, caller.stats()["set_up_delay"]["p99_us"] / 1e3)


def measure(options: argparse.Namespace, case: Case) -> Run:
    """Makes the calls through a fresh Tidegate, first alone, then beside the connections."""
    with Stage() as stage:
        # The callee answers registrations too.
        callee = tidegate.callee(stage, "uas", options.profile)
        port, certificate = free_port(), Certificate.make(stage.directory)
        # The [connections] table of `over_tcp` serves both transports.
        tables = over_tcp(free_port()) + access.listener(case.transport, port, certificate)
        edge = tidegate.start(stage, [callee.port], options.profile, mode="transaction", tables=tables)
        alone = calls(stage, edge, options, "alone", case.round)
        memory = edge.process.memory_bytes()
        phones = Phones(stage, edge, options, case, port, certificate.file)
        before = edge.metrics()
        beside = calls(stage, edge, options, "beside", case.round)
        after = edge.metrics()
        # Memory is measured twice, each time after the same calls. So the memory for calls is the same.
        grown = edge.process.memory_bytes() - memory
        stats = phones.finish()["stats"]

    def passed(name: str) -> int:
        return after.total(name) - before.total(name)

    keep_alives = passed("stream_received")
    additional_us = (beside.cpu_us - alone.cpu_us) * beside.calls.created
    return Run(
        round=case.round,
        transport=case.transport,
        offered=case.connections,
        calls=beside.calls.created,
        failed=beside.calls.failed,
        failed_alone=alone.calls.failed,
        connections=round(after.value("connections")),
        ended=stats["connections_ended"],
        keep_alives=keep_alives,
        answered=passed("stream_sent"),
        cpu_us_per_call=beside.cpu_us,
        cpu_us_per_call_alone=alone.cpu_us,
        cpu_us_per_keep_alive=additional_us / max(keep_alives, 1),
        cores_for_keep_alives=additional_us / 1e6 / options.seconds,
        setup_p99_ms=beside.setup_p99_ms,
        setup_p99_ms_alone=alone.setup_p99_ms,
        bytes_per_connection=grown / case.connections,
    )


COLUMNS = [
    Column("failed", "failed", 0, "sum"),
    Column("connections", "connections"),
    Column("ended", "ended", 0, "sum"),
    Column("keep-alives", "keep_alives"),
    Column("µs a call", "cpu_us_per_call", 1, "spread"),
    Column("µs a call alone", "cpu_us_per_call_alone", 1, "spread"),
    Column("µs a keep-alive", "cpu_us_per_keep_alive", 1),
    Column("cores for keep-alives", "cores_for_keep_alives", 4),
    Column("p99 ms", "setup_p99_ms", 2),
    Column("p99 ms alone", "setup_p99_ms_alone", 2),
    Column("bytes each", "bytes_per_connection", 0, "spread"),
]


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--connections",
            type=int,
            nargs="+",
            default=CONNECTIONS,
            help="numbers of open connections, one run for each (default %(default)s)",
        )
        parser.add_argument(
            "--transports",
            choices=TRANSPORTS,
            nargs="+",
            default=TRANSPORTS,
            help="transports to measure (default %(default)s)",
        )
        parser.add_argument(
            "--rate", type=float, default=RATE_CPS, help="calls/s while the connections are open (default %(default)s)"
        )
        parser.add_argument(
            "--seconds", type=float, default=SECONDS, help="duration of the calls in s (default %(default)s)"
        )
        parser.add_argument(
            "--keep-alive",
            type=float,
            default=KEEP_ALIVE_S,
            help="seconds between two keep-alives of a connection (default %(default)s)",
        )

    def run(self) -> Results:
        cases = itertools.product(self.rounds, self.options.transports, self.options.connections)
        runs = [measure(self.options, Case(*case)) for case in cases]
        rows = self.rows("runs", [asdict(run) for run in runs])
        table.show(rows, COLUMNS, line=lambda row: f"{row['transport']}, {row['offered']:,}")
        for run in runs:
            self.expect(
                run.failed == 0,
                f"round {run.round}, {run.transport}, {run.offered:,}: {run.failed} of {run.calls:,} calls failed",
            )
            kept = run.connections == run.offered and run.ended == 0
            self.expect(kept, f"  {run.connections:,} connections are open, {run.ended} ended early")
            # The first keep-alives come within the first interval, so one may be missing for each connection.
            least = run.connections * (int(self.options.seconds / self.options.keep_alive) - 1)
            answered = run.answered == run.keep_alives >= max(least, 1)
            self.expect(answered, f"  {run.answered:,} of {run.keep_alives:,} keep-alives were answered")
            each, most = run.bytes_per_connection, BYTES_MAX[run.transport]
            self.expect(each <= most, f"  {each:,.0f} bytes for each connection, of {most:,}")
        return {"runs": rows}
