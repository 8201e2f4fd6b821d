"""The elements that are measured between a caller and a callee: Tidegate, a bare relay, Kamailio."""

from collections.abc import Callable
from functools import partial

from tidegate_bench import access, kamailio, tidegate
from tidegate_bench.access import CONNECTIONS_MAX, UDP, Access, Certificate
from tidegate_bench.process import Process, Stage
from tidegate_bench.sockets import LOCALHOST, free_port

BASELINE = "relay"
"""The element with which the others are compared: it does the least that an element can do."""
OVER_STREAMS = ("transaction", "stateless", "t_relay", "t_relay_debian")
"""The elements that callers can reach over TCP and TLS."""

# The process of an element, and the port at which callers reach it.
Element = tuple[Process, int]
Start = Callable[[Stage, int], Element]


def _tidegate(
    mode: str, server: str, by: Access, certificate: Certificate | None, stage: Stage, backend: int
) -> Element:
    port, tables = 0, ""
    if by.over_streams:
        port = free_port()
        tables = access.listener(by.transport, port, certificate) + access.ROOM
    edge = tidegate.start(stage, [backend], "release", mode=mode, server=server, tables=tables)
    return edge.process, port or edge.port


def _relay(stage: Stage, backend_port: int) -> Element:
    port = free_port()
    command = [tidegate.built("examples/relay", "release"), "--listen", f"{LOCALHOST}:{port}"]
    return stage.serve("relay", [*command, "--backend", f"{LOCALHOST}:{backend_port}"], port), port


def _kamailio(
    transactions: bool,
    allocator: str | None,
    by: Access,
    certificate: Certificate | None,
    stage: Stage,
    backend_port: int,
) -> Element:
    started = kamailio.run(
        stage,
        backend_port,
        transactions=transactions,
        allocator=allocator,
        connections_max=CONNECTIONS_MAX if by.over_streams else 0,
        certificate=certificate if by.transport == "tls" else None,
    )
    return started.process, started.port


def elements(server: str = "", by: Access = UDP, certificate: Certificate | None = None) -> dict[str, Start]:
    """Returns for each element the function that starts it in front of a callee, at this port.

    Elements that callers cannot reach in the way `by` are left out. Over TLS the element needs the certificate.
    `server` are more keys of [server] for Tidegate.
    """
    started: dict[str, Start] = {
        "transaction": partial(_tidegate, "transaction", server, by, certificate),
        "stateless": partial(_tidegate, "stateless", server, by, certificate),
        "relay": _relay,
        "forward": partial(_kamailio, False, "fm", by, certificate),
        "t_relay": partial(_kamailio, True, "fm", by, certificate),
        "forward_debian": partial(_kamailio, False, None, by, certificate),
        "t_relay_debian": partial(_kamailio, True, None, by, certificate),
    }
    return {name: start for name, start in started.items() if not by.over_streams or name in OVER_STREAMS}
