"""5,000 calls each over TCP, TLS and WebSockets, and 900 networks whose connections break: none fails

In each round, first on real sockets, 5,000 calls are made in each of ten ways: by Tidegate's own caller over TCP, TLS
and secure WebSockets, with one connection for all calls or one for each call; by SIPp over TCP in the same two ways
(`-t t1`, `-t tn`); from UDP to a back end over TCP, and from TCP to a back end over UDP. No call may fail, and no
message may be lost. The certificate of the listeners for TLS and for WebSockets is checked.

Then, in simulated time, 300 worlds are drawn. The next round draws from the next 300 seeds. In these worlds messages
travel on streams in some places: from callers, between proxies, or to back ends. Connections are reset, break within a
message, and are read slowly. Nodes crash, stall and are partitioned. All checkers watch. `make show-planted` shows what
they find if something is broken on purpose. `--part` selects one of the two parts.
"""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tidegate_bench import access, program, sipp, table, tidegate
from tidegate_bench.access import SECURE, Certificate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.table import Column

WORLDS = 300
CALLS_MIN = 80_000
TALLY = ("offered", "set_up", "completed", "delivered", "missing", "faults", "failed")

# At this rate a round takes about two minutes without its worlds.
CALLS, RATE_CPS = 5_000, 500


@dataclass(frozen=True)
class Way:
    """The caller, the transports, and the number of connections of the caller."""

    generator: str
    """`tidegate` or `sipp`."""
    outside: str
    inside: str
    connections: str
    """`1`: one for all calls. `each`: one for each call. `-` over UDP."""

    def __str__(self) -> str:
        connections = {"each": "one for each call", "1": "one for all", "-": ""}[self.connections]
        return f"{self.generator:8} {self.outside}->{self.inside} {connections:17}"


WAYS = (
    Way("tidegate", "tcp", "udp", "1"),
    Way("tidegate", "tcp", "udp", "each"),
    Way("tidegate", "tcp", "tcp", "1"),
    Way("tidegate", "udp", "tcp", "-"),
    Way("tidegate", "tls", "udp", "1"),
    Way("tidegate", "tls", "tcp", "each"),
    Way("tidegate", "wss", "udp", "1"),
    Way("tidegate", "wss", "udp", "each"),
    Way("sipp", "tcp", "tcp", "1"),
    Way("sipp", "tcp", "tcp", "each"),
)


def listeners(stage: Stage) -> tuple[dict[str, int], str, Path]:
    """Returns ports for listeners for TCP and over TLS, their tables, and the certificate for TLS."""
    transports = ("tcp", *SECURE)
    ports, certificate = {transport: free_port() for transport in transports}, Certificate.make(stage.directory)
    tables = "".join(access.listener(transport, port, certificate) for transport, port in ports.items())
    return ports, tables, certificate.file


def one_way(show: Demonstration, way: Way, round_: int) -> dict[str, Any]:
    """Makes the calls in one way through a fresh Tidegate in front of a fresh callee."""
    begun = time.monotonic()
    with Stage() as stage:
        ports, tables, authority = listeners(stage)
        callee = tidegate.callee(stage, "uas", transport=way.inside)
        pool = "" if way.inside == "udp" else f'transport = "{way.inside}"\n'
        edge = tidegate.start(stage, [callee.port], mode="transaction", pool=pool, tables=tables)
        target = f"{LOCALHOST}:{ports.get(way.outside, edge.port)}"
        before_ns = edge.process.cpu_ns()
        counted: Mapping[str, Any] = {}
        if way.generator == "sipp":
            mode = "tn" if way.connections == "each" else "t1"
            calls = _sipp(stage, target, mode)
        else:
            options = [] if way.outside == "udp" else ["--transport", way.outside, "--connections", way.connections]
            options += ["--ca", str(authority)] if way.outside in SECURE else []
            caller = tidegate.caller(stage, "uac", target, rate_cps=RATE_CPS, calls=CALLS, seed=round_, options=options)
            caller.end(CALLS / RATE_CPS + 90)
            calls, counted = caller.calls(), caller.connections()
        cpu_us = (edge.process.cpu_ns() - before_ns) / 1000 / CALLS
        metrics = edge.metrics()
        show.text(f"{round_}-{way.generator}-{way.outside}-{way.inside}-{way.connections}.metrics", metrics.text)
        served = callee.finish()
    show.expect(calls.clean and calls.created == CALLS, f"round {round_}, {str(way).rstrip()}: {calls}")
    show.expect(served["completed"] == CALLS and served["stray"] == 0, f"  the back end: {served['completed']:,} calls")
    row = {
        "round": round_,
        **asdict(way),
        **asdict(calls),
        "served": served["completed"],
        "tidegate_us_per_call": round(cpu_us, 1),
    }
    for name in ("opened", "failed", "handshakes", "websockets", "sent_bytes", "received_bytes", "unsent"):
        row[f"connections_{name}"] = counted.get(name, "")
    if counted:
        opened = CALLS if way.connections == "each" else 1
        losses = counted["failed"] + counted["excess"] + counted["unsent"]
        show.expect(counted["opened"] == opened and losses == 0, f"  connections: {counted['opened']:,}, {losses} lost")
    return {**row, "seconds": round(time.monotonic() - begun, 1)}


def _sipp(stage: Stage, target: str, mode: str) -> sipp.Calls:
    """Makes calls by a SIPp over TCP. It does not listen, so nothing waits for its port."""
    words = sipp.command(stage, "sipp", "uac-routes", free_port(), options=("-t", mode))
    words += ["-r", str(RATE_CPS), "-m", str(CALLS), "-l", str(CALLS), "-d", "100"]
    process = stage.start("sipp", [*words, "-timeout", f"{CALLS / RATE_CPS + 60:.0f}s", target])
    process.wait(CALLS / RATE_CPS + 90)
    return sipp.made_by(stage, "sipp", process, 0).calls()


class Show(Demonstration):
    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--part",
            choices=("calls", "worlds", "both"),
            default="both",
            help="part of the demonstration to run (default %(default)s)",
        )

    def run(self) -> Results:
        part = self.options.part
        calls = self._calls() if part != "worlds" else []
        worlds = self._worlds() if part != "calls" else []
        return {"calls": calls, "worlds": worlds}

    def _calls(self) -> Sequence[Mapping[str, Any]]:
        rows = self.rows("calls", [one_way(self, way, round_) for round_ in self.rounds for way in WAYS])
        columns = [Column("calls", "created", 0, "sum"), Column("failed", "failed", 0, "sum")]
        columns.append(Column("µs a call", "tidegate_us_per_call", 1, "spread"))
        ways = [str(way) for _ in self.rounds for way in WAYS]
        numbered = [{**row, "way": way} for row, way in zip(rows, ways, strict=True)]
        table.show(numbered, columns, line=lambda row: str(row["way"]))
        return rows

    def _worlds(self) -> Sequence[Mapping[str, Any]]:
        rows = []
        for round_ in self.rounds:
            first = 1 + (round_ - 1) * WORLDS
            seeds = ("--from", first, "--seeds", WORLDS, "--tries", 20)
            found = program.swarm("--streams", *seeds, "--out", self.directory / f"worlds-{first}")
            self.text(f"swarm-{first}.json", json.dumps(found))
            rows.append({"first": first, "worlds": WORLDS, **found["tally"]})
        self.rows("worlds", rows)
        table.show(rows, [Column(name, name) for name in TALLY], line=lambda row: f"from seed {row['first']}")
        for row in rows:
            self.expect(
                row["failed"] == 0 and row["unwatched"] == 0,
                f"nothing is found in {row['worlds']} worlds from seed {row['first']}",
            )
        calls = [row["offered"] for row in rows]
        self.expect(min(calls) >= CALLS_MIN, f"{min(calls):,} calls or more in each hunt")
        self.expect(len(set(calls)) == len(calls), "the hunts have different calls")
        return rows
