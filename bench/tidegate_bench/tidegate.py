"""Tidegate: its configuration, its start, and its own generator as caller and callee."""

import json
import os
import signal
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate_bench.process import Process, Stage
from tidegate_bench.quota import Quota
from tidegate_bench.record import ROOT
from tidegate_bench.sipp import Calls
from tidegate_bench.sockets import LOCALHOST, free_port

DEFAULT_QUEUE_MAX = 4_096
"""Default of `queue_max` in Tidegate and here: the number of messages that may wait in each queue."""


def built(program: str, profile: str = "debug") -> str:
    """Returns a program that cargo has built, in its folder `debug` (optimised too) or `release`."""
    path = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / profile / program
    if not path.exists():
        sys.exit(f"{path} does not exist: build it first, or run the demonstration with `make show-NAME`")
    return str(path)


class Metrics:
    """The metrics of a Tidegate at one moment, as Prometheus text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def value(self, name: str, **labels: str) -> float:
        """Returns the sum of the samples of `tidegate_NAME` with these labels. `class_` is the label `class`."""
        return sum(self.samples(name, **labels))

    def samples(self, name: str, **labels: str) -> Iterator[float]:
        """Yields the samples of `tidegate_NAME` with these labels."""
        wanted = [f'{label.rstrip("_")}="{value}"' for label, value in labels.items()]
        for line in self.text.splitlines():
            if line.startswith((f"tidegate_{name}{{", f"tidegate_{name} ")) and all(label in line for label in wanted):
                yield float(line.rpartition(" ")[2])

    def total(self, name: str, **labels: str) -> int:
        """Returns the value of the counter `tidegate_NAME_total`."""
        return round(self.value(f"{name}_total", **labels))


@dataclass
class Edge:
    """A Tidegate: its addresses, its configuration file, and its process when it runs."""

    port: int
    admin_port: int
    configuration: Path
    started: Process | None = None

    @property
    def address(self) -> str:
        return f"{LOCALHOST}:{self.port}"

    @property
    def process(self) -> Process:
        assert self.started, "it runs"
        return self.started

    def metrics(self) -> Metrics:
        """Returns the present metrics."""
        with urllib.request.urlopen(f"http://{LOCALHOST}:{self.admin_port}/metrics", timeout=5) as answer:
            return Metrics(answer.read().decode())


def configure(
    stage: Stage,
    backends: Sequence[int | str],
    *,
    policy: str = "rr",
    mode: str = "stateless",
    queue_max: int = DEFAULT_QUEUE_MAX,
    server: str = "",
    listen: str = "",
    pool: str = "",
    tables: str = "",
    name: str = "tidegate",
    state: str | None = None,
) -> Edge:
    """Writes the smallest configuration, on free ports, with its state in the scratch directory.

    `backends` are ports, or addresses with ports. `server`, `listen` and `pool` are more keys of [server], of the
    listener and of the pool. `tables` are more tables, such as [overload]. The configuration file is
    NAME.toml. The state directory is STATE-state, or NAME-state without `state`.
    """
    edge = Edge(free_port(), free_port(), stage.directory / f"{name}.toml")
    addresses = [f"{LOCALHOST}:{b}" if isinstance(b, int) else b for b in backends]
    members = "".join(f'[[pool.backend]]\nuri = "sip:{address}"\n' for address in addresses)
    edge.configuration.write_text(
        f"""\
[server]
shards = 1
queue_max = {queue_max}
{server}
state_dir = "{stage.directory / f"{state or name}-state"}"

[admin]
address = "{LOCALHOST}:{edge.admin_port}"

[[listen]]
transport = "udp"
address = "{edge.address}"
{listen}
[[pool]]
name = "app"
policy = "{policy}"
mode = "{mode}"
{pool}{members}{tables}"""
    )
    return edge


def run(
    stage: Stage,
    edge: Edge,
    profile: str = "debug",
    name: str = "tidegate",
    quota: Quota | None = None,
    options: Sequence[str] = (),
) -> Process:
    """Starts `tidegate run` and returns when it listens."""
    command = [built("tidegate", profile), "run", "--config", str(edge.configuration), *options]
    edge.started = stage.serve(name, command, edge.port, quota=quota)
    return edge.started


def start(
    stage: Stage,
    backends: Sequence[int | str],
    profile: str = "debug",
    quota: Quota | None = None,
    options: Sequence[str] = (),
    **configuration: Any,
) -> Edge:
    """Configures a Tidegate as `configure` does, starts it, and returns when it listens."""
    edge = configure(stage, backends, **configuration)
    run(stage, edge, profile, configuration.get("name", "tidegate"), quota, options)
    return edge


class Caller:
    """A running `tidegate load uac`, with the same methods as `sipp.Sipp`."""

    def __init__(self, process: Process, port: int, report: Path) -> None:
        self.process = process
        self.port = port
        self.report = report

    def stats(self) -> dict[str, Any]:
        """Returns all counts, which exist only after its end."""
        return _stats(self.process, self.report)

    def connections(self) -> dict[str, Any]:
        """Returns the counts of its connections, which are empty over UDP."""
        return read_report(self.process, self.report)["usage"]["streams"] or {}

    def end(self, patience_s: float) -> bool:
        """Waits for its end, and ends it after this time with its open calls. Returns whether it ended by itself."""
        ended = self.process.wait(patience_s)
        if not ended:
            cut(self.process)
        return ended

    def calls(self) -> Calls:
        """Returns its counts, in the form of SIPp's counts."""
        stats = self.stats()
        return Calls(
            created=stats["offered"],
            successful=stats["completed"],
            failed=stats["offered"] - stats["completed"],
            unexpected=stats["failed"]["malformed"],
            out_of_call=stats["unexpected"],
            retransmissions=sum(stats["repeated"].values()),
        )


@dataclass(frozen=True)
class Callee:
    """A running `tidegate load uas`."""

    process: Process
    port: int
    report: Path

    def finish(self) -> dict[str, Any]:
        """Ends it, and returns all its counts."""
        self.process.stop()
        return _stats(self.process, self.report)


def callee(
    stage: Stage, name: str, profile: str = "debug", options: Sequence[str] = (), transport: str = "udp"
) -> Callee:
    """Starts a `tidegate load uas` and returns when it listens."""
    port, report = free_port(), stage.directory / f"{name}.json"
    command = [built("tidegate", profile), "load", "uas", "--bind", f"{LOCALHOST}:{port}"]
    command += ["--transport", transport, "--json", str(report), *options]
    return Callee(stage.serve(name, command, port, over_streams=transport != "udp"), port, report)


def _stats(process: Process, report: Path) -> dict[str, Any]:
    stats: dict[str, Any] = read_report(process, report)["stats"]
    return stats


def read_report(process: Process, report: Path) -> dict[str, Any]:
    """Returns the report of a `tidegate load` that has ended. Without a report, exits with the end of its output."""
    try:
        figures: dict[str, Any] = json.loads(report.read_text())
    except (OSError, ValueError):
        sys.exit(f"{process.name} ended without a report:\n{process.tail()}")
    return figures


def cut(agent: Process) -> None:
    """Makes a `tidegate load` end at once and write its report, by a second signal."""
    for _ in range(2):
        agent.send(signal.SIGINT)
        agent.wait(0.05)
    agent.stop()


def caller(
    stage: Stage,
    name: str,
    target: str,
    *,
    rate_cps: float,
    calls: int,
    follow_routes: bool = True,
    profile: str = "debug",
    seed: int | None = None,
    options: Sequence[str] = (),
) -> Caller:
    """Starts a `tidegate load uac` that makes `calls` calls at even intervals, with further `options`.

    Unless it follows routes, ACK and BYE go to the target of the INVITE.
    """
    words = ["--calls", str(calls), "--arrivals", "uniform"] + ([] if follow_routes else ["--no-record-route"])
    return _caller(stage, name, target, rate_cps, seed, LOCALHOST, profile, [*words, *options])


def caller_for(
    stage: Stage,
    target: str,
    *,
    rate_cps: float,
    seconds: float,
    hold: float | str,
    seed: int,
    host: str = LOCALHOST,
    name: str = "uac",
    options: Sequence[str] = (),
) -> Caller:
    """Starts a `tidegate load uac` at `host` that makes independent calls for this time, with further `options`.

    `hold` is the holding time in seconds, or a distribution such as `exp:3`.
    """
    words = ["--duration", str(seconds), "--hold", str(hold), *options]
    return _caller(stage, name, target, rate_cps, seed, host, "debug", words)


def _caller(
    stage: Stage,
    name: str,
    target: str,
    rate_cps: float,
    seed: int | None,
    host: str,
    profile: str,
    options: Sequence[str],
) -> Caller:
    port, report = free_port(), stage.directory / f"{name}.json"
    command = [built("tidegate", profile), "load", "uac", target, "--bind", f"{host}:{port}"]
    command += ["--rate", str(rate_cps), "--json", str(report), *options]
    command += [] if seed is None else ["--seed", str(seed)]
    transport = options[options.index("--transport") + 1] if "--transport" in options else "udp"
    if transport in ("ws", "wss"):
        # RFC 7118 §5: a client of a WebSocket opens connections and accepts none.
        return Caller(stage.start(name, command), port, report)
    return Caller(stage.serve(name, command, port, over_streams=transport != "udp"), port, report)
