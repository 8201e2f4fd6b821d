"""Tidegate: its configuration, its start, and its own generator as caller and callee."""

import json
import os
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .process import Process, Stage
from .quota import Quota
from .record import ROOT
from .sipp import Calls
from .sockets import LOCALHOST, free_port


def built(program: str, profile: str = "debug") -> str:
    """A program that cargo has built, in its folder `debug` (optimised too) or `release`."""
    path = ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / profile / program
    if not path.exists():
        sys.exit(f"{path} is not there: build it first, or use the make target")
    return str(path)


@dataclass(frozen=True)
class Edge:
    """Where a Tidegate will listen, and the configuration file that says so."""

    port: int
    admin_port: int
    configuration: Path

    @property
    def address(self) -> str:
        return f"{LOCALHOST}:{self.port}"


def configure(
    stage: Stage,
    backends: Sequence[int | str],
    *,
    policy: str = "rr",
    mode: str = "stateless",
    queue_max: int = 4096,
    server: str = "",
    listen: str = "",
    tables: str = "",
    name: str = "tidegate",
    state: str | None = None,
) -> Edge:
    """The smallest configuration, on free ports, with its state in the scratch directory.

    `backends` are ports, or addresses with ports. `server`, `listen` and `tables` are added as they
    are: more keys of [server], of the listener, more tables, such as [overload]. The files bear
    `name`, and so does the state unless another is named.
    """
    edge = Edge(free_port(), free_port(), stage.directory / f"{name}.toml")
    addresses = [f"{LOCALHOST}:{b}" if isinstance(b, int) else b for b in backends]
    pool = "".join(f'[[pool.backend]]\nuri = "sip:{address}"\n' for address in addresses)
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
{pool}{tables}"""
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
    """Starts `tidegate run` and returns once it listens."""
    command = [built("tidegate", profile), "run", "--config", str(edge.configuration), *options]
    return stage.serve(name, command, edge.port, quota=quota)


def metrics(edge: Edge) -> str:
    """What it reports of itself now, as Prometheus text."""
    return _ask(edge, "/metrics").decode()


def metric(text: str, name: str, **labels: str) -> float:
    """The sum of the samples of `name` that bear these labels, in what `metrics` gave."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith(f"{name}{{") and all(label in line for label in wanted)
    )


def status(edge: Edge) -> dict[str, Any]:
    """What it says of itself now at /status."""
    answer: dict[str, Any] = json.loads(_ask(edge, "/status"))
    return answer


def _ask(edge: Edge, path: str) -> bytes:
    url = f"http://{LOCALHOST}:{edge.admin_port}{path}"
    with urllib.request.urlopen(url, timeout=5) as answer:
        body: bytes = answer.read()
    return body


class Caller:
    """A running `tidegate load uac`, with the face of `sipp.Sipp`."""

    def __init__(self, process: Process, port: int, report: Path) -> None:
        self.process = process
        self.port = port
        self._report = report

    def stats(self) -> dict[str, Any]:
        """All that it counted; there only once it has ended."""
        return _stats(self.process, self._report)

    def calls(self) -> Calls:
        """What it counted, in SIPp's words."""
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
        """Ends it, and returns all that it counted."""
        self.process.stop()
        return _stats(self.process, self.report)


def callee(
    stage: Stage, name: str, profile: str = "debug", options: Sequence[str] = ()
) -> Callee:
    """Starts a `tidegate load uas` and returns once it listens."""
    port, report = free_port(), stage.directory / f"{name}.json"
    command = [built("tidegate", profile), "load", "uas", "--bind", f"{LOCALHOST}:{port}"]
    command += ["--json", str(report), *options]
    return Callee(stage.serve(name, command, port), port, report)


def _stats(process: Process, report: Path) -> dict[str, Any]:
    try:
        stats: dict[str, Any] = json.loads(report.read_text())["stats"]
    except (OSError, ValueError):
        sys.exit(f"{process.name} left no report:\n{process.tail()}")
    return stats


def caller(
    stage: Stage,
    name: str,
    target: str,
    *,
    rate_cps: int,
    calls: int,
    follow_routes: bool = True,
    profile: str = "debug",
    seed: int | None = None,
) -> Caller:
    """Starts a `tidegate load uac` that makes `calls` calls at even intervals.

    Unless it is to follow routes, ACK and BYE go where the INVITE went.
    """
    port, report = free_port(), stage.directory / f"{name}.json"
    command = [built("tidegate", profile), "load", "uac", target, "--bind", f"{LOCALHOST}:{port}"]
    command += ["--rate", str(rate_cps), "--calls", str(calls), "--arrivals", "uniform"]
    command += ["--json", str(report)]
    if not follow_routes:
        command += ["--no-record-route"]
    if seed is not None:
        command += ["--seed", str(seed)]
    return Caller(stage.serve(name, command, port), port, report)
