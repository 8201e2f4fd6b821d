"""An open load of registrations, over UDP or in one of three ways over TCP, and its outcome."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from tidegate_bench import kamailio, tidegate
from tidegate_bench.load import Load, Outcome, outcome_of, run, words
from tidegate_bench.process import Process, Stage
from tidegate_bench.quota import Quota
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.tidegate import DEFAULT_QUEUE_MAX, built, cut, read_report

MODES = {
    "udp": "UDP",
    "each": "TCP, a connection for each registration",
    "opening": "TCP, the connection stays open; opening it counts as a part of the response time",
    "persistent": "TCP, the connection stays open; opening it does not count",
}
"""The ways to register in paper 004, §4.4."""

CONNECTIONS = 1_000
"""Connections that are open before the measurement begins, in the mode `persistent`."""
# The most connections of one run. Linux has 28,232 ports for connections to one address, and uses every second one
# first. Beyond those, it searches all of them for each connection, which takes milliseconds.
_OPENED_MAX = 13_000
# The most connections that an element accepts. A process may have 20,000 descriptors on this machine.
_ACCEPTED_MAX = 18_800
# T1 over TCP. A registration without a response ends after 64*T1 = 2 s, because until then it keeps its connection.
# T1 has no other effect, because nothing is retransmitted over TCP.
_T1_MS = 31.25
# The period of the quota. A tenth of it is 1 ms, the shortest slice of a quota.
_PERIOD_US = 10_000
# The generator may send this much late, so that one wake serves several messages. This time adds to each response time.
SLACK_MS = 1.0


def fitted(mode: str, load: Load) -> Load:
    """Returns the load, made shorter if its connections would not fit into a process."""
    if mode != "opening":
        return load
    share = min(1.0, _OPENED_MAX / (load.rate_cps * load.seconds))
    return replace(load, warm_up_s=share * load.warm_up_s, measured_s=share * load.measured_s)


def connections(mode: str, load: Load) -> list[str]:
    """Returns the options of `tidegate load register` for a mode."""
    # So many users that none has to wait for the response to its previous registration.
    users = math.ceil(1.02 * load.rate_cps * load.seconds) + 100
    options = ["--users", str(users)]
    if mode == "udp":
        return options
    options += ["--transport", "tcp", "--t1", str(_T1_MS)]
    if mode == "each":
        return [*options, "--connections", "each"]
    if mode == "opening":
        return [*options, "--connections", str(users)]
    # The warm-up opens all of them, unless the server accepts them too slowly.
    return [*options, "--connections", str(max(1, min(CONNECTIONS, int(load.rate_cps * load.warm_up_s / 2))))]


@dataclass(frozen=True)
class Element:
    """A process under the load, its address, and the registrar behind it. A registrar has `None` behind it."""

    process: Process
    address: str
    registrar: Process | None


Start = Callable[[Stage, str, Quota | None, str], Element]
"""The function that starts an element for a mode, under a quota, from a build."""


def _echo(stage: Stage, mode: str, quota: Quota | None, profile: str) -> Element:
    port, transport = free_port(), "udp" if mode == "udp" else "tcp"
    command = [built("tidegate", profile), "load", "uas", "--echo", "--bind", f"{LOCALHOST}:{port}"]
    process = stage.serve(
        "echo", [*command, "--transport", transport, "--slack", "0"], port, quota=quota, over_streams=mode != "udp"
    )
    return Element(process, f"{LOCALHOST}:{port}", None)


def over_tcp(port: int) -> str:
    """Returns tables of a Tidegate that accepts as many connections at this port as it can."""
    return f"""
[[listen]]
transport = "tcp"
address = "{LOCALHOST}:{port}"

[connections]
accepted_max = {_ACCEPTED_MAX}
per_source_max = {_ACCEPTED_MAX}
opened_max = 512
"""


def _tidegate(
    stage: Stage, mode: str, quota: Quota | None, profile: str, queue_max: int = DEFAULT_QUEUE_MAX, overload: str = ""
) -> Element:
    registrar = tidegate.callee(stage, "registrar", profile, ["--echo", "--slack", "0"])
    port = free_port()
    tables = over_tcp(port) + overload
    edge = tidegate.start(
        stage, [registrar.port], profile, quota, mode="transaction", queue_max=queue_max, tables=tables
    )
    address = edge.address if mode == "udp" else f"{LOCALHOST}:{port}"
    return Element(edge.process, address, registrar.process)


def _kamailio(stage: Stage, mode: str, quota: Quota | None, profile: str) -> Element:
    registrar = tidegate.callee(stage, "registrar", profile, ["--echo", "--slack", "0"])
    connections_max = 0 if mode == "udp" else _ACCEPTED_MAX
    started = kamailio.run(stage, registrar.port, transactions=True, quota=quota, connections_max=connections_max)
    return Element(started.process, started.address, registrar.process)


ELEMENTS: dict[str, Start] = {"echo": _echo, "tidegate": _tidegate, "kamailio": _kamailio}
"""A server that only echoes, and two proxies with transactions, each in front of such a server."""


def with_queue(queue_max: int, overload: str) -> Start:
    """Returns the function that starts a Tidegate with this limit on each of its queues and these tables."""
    return partial(_tidegate, queue_max=queue_max, overload=overload)


@dataclass(frozen=True)
class Registrations:
    """The outcome of a load. A call of `outcome` is a registration."""

    outcome: Outcome
    mean_ms: float
    """Mean response time of the registrations that were answered with 2xx."""
    memory_mib: float
    """Memory of the element at the end of the load."""
    memory_before_mib: float

    def row(self) -> dict[str, Any]:
        """Returns the row for a table of raw data."""
        own = {name: value for name, value in asdict(self).items() if name != "outcome"}
        return {**own, "us_each": self.outcome.steady_us_per_call, **self.outcome.row()}


def offer(
    element: str | Start, mode: str, load: Load, profile: str, share: float | None = None, slack_ms: float = SLACK_MS
) -> Registrations:
    """Offers the load to a fresh element, and ends the generator after the last deadline.

    The element may use this `share` of a core. Without `share` there is no limit.
    """
    load = fitted(mode, load)
    with Quota(share, _PERIOD_US) if share else nullcontext() as quota, Stage() as stage:
        start = ELEMENTS[element] if isinstance(element, str) else element
        under = start(stage, mode, quota, profile)
        file = stage.directory / "register.json"
        command = [built("tidegate", profile), "load", "register", under.address, "--bind", f"{LOCALHOST}:0"]
        command += [*words(load, file, slack_ms), *connections(mode, load)]
        before = under.process.memory_bytes()
        memory: list[int] = []

        def end(caller: Process) -> None:
            memory.append(under.process.memory_bytes())
            cut(caller)

        caller, usage = run(lambda: stage.start("register", command), under.process, under.registrar, load, end)
        report = read_report(caller, file)
        # An overloaded server may take long to stop in an orderly way.
        stage.kill()
    outcome = outcome_of(report, load, usage, in_time="registered_in_time", repeated="repeated", delay="delay")
    mean_ms = report["stats"]["measured"]["delay"]["mean_us"] / 1e3
    return Registrations(outcome, mean_ms, memory_mib=memory[0] / 2**20, memory_before_mib=before / 2**20)
