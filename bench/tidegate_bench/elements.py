"""The elements that are measured between a caller and a callee: Tidegate, a bare relay, Kamailio."""

from collections.abc import Callable
from functools import partial

from tidegate_bench import kamailio, tidegate
from tidegate_bench.process import Process, Stage
from tidegate_bench.sockets import LOCALHOST, free_port

BASELINE = "relay"
"""The element with which the others are compared: it does the least that an element can do."""

# A process, and its port.
Element = tuple[Process, int]
Start = Callable[[Stage, int], Element]


def _tidegate(mode: str, server: str, stage: Stage, backend_port: int) -> Element:
    edge = tidegate.start(stage, [backend_port], "release", mode=mode, server=server)
    return edge.process, edge.port


def _relay(stage: Stage, backend_port: int) -> Element:
    port = free_port()
    command = [tidegate.built("examples/relay", "release"), "--listen", f"{LOCALHOST}:{port}"]
    return stage.serve("relay", [*command, "--backend", f"{LOCALHOST}:{backend_port}"], port), port


def _kamailio(transactions: bool, allocator: str | None, stage: Stage, backend_port: int) -> Element:
    started = kamailio.run(stage, backend_port, transactions=transactions, allocator=allocator)
    return started.process, started.port


def elements(server: str = "") -> dict[str, Start]:
    """Returns the function that starts each element in front of a callee.

    `server` are more keys of [server] for Tidegate.
    """
    return {
        "transaction": partial(_tidegate, "transaction", server),
        "stateless": partial(_tidegate, "stateless", server),
        "relay": _relay,
        "forward": partial(_kamailio, False, "fm"),
        "t_relay": partial(_kamailio, True, "fm"),
        "forward_debian": partial(_kamailio, False, None),
        "t_relay_debian": partial(_kamailio, True, None),
    }
