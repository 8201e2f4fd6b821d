"""Servers that send to one receiver, as in paper 002. The receiver tells them how much they may send (RFC 7339)."""

from collections.abc import Sequence

from tidegate_bench import tidegate
from tidegate_bench.process import Stage
from tidegate_bench.tidegate import Callee, Edge

CAPACITY_CPS = 72.0
SENDERS = 3
# At the receiver, without transactions: INVITE, 180, 200, ACK, BYE, 200.
MESSAGES = 6
# The cost of a rejection, as a part of the cost of a message.
REJECT = 1 / 6

# Callers name the senders in their Request-URIs.
_ROUTE = '[[route]]\ndomain = ["127.0.0.1"]\nto = "app"\n'
NO_FEEDBACK = "[overload.feedback]\nalgorithms = []\n"


def given(
    algorithms: Sequence[str] = ("loss",), law: str = "tide", peers: str = "127.0.0.1", fairness: str = "provider"
) -> str:
    """Returns the tables of a receiver that gives feedback by one of these algorithms to the network `peers`."""
    listed = ", ".join(f'"{algorithm}"' for algorithm in algorithms)
    return (
        f'[overload]\nlaw = "{law}"\ndisposal = "reject"\n'
        f'[overload.feedback]\nalgorithms = [{listed}]\npeers = ["{peers}"]\nfairness = "{fairness}"\n'
    )


def receiver(stage: Stage, profile: str, tables: str, capacity_cps: float = CAPACITY_CPS) -> tuple[Callee, Edge]:
    """Starts an answerer, and in front of it a Tidegate with these tables and this capacity."""
    callee = tidegate.callee(stage, "uas", profile)
    serve_us = 1e6 / capacity_cps / MESSAGES
    emulate = f"[emulate]\nserve_us = {serve_us:.3f}\nreject_us = {serve_us * REJECT:.3f}\n"
    return callee, tidegate.start(stage, [callee.port], profile, name="receiver", tables=emulate + _ROUTE + tables)


def sender(
    stage: Stage, to: Edge, profile: str, index: int = 0, *, mode: str = "stateless", health: str | None = None
) -> Edge:
    """Starts a Tidegate that is as fast as the machine, and obeys the feedback of the receiver.

    With the table `health`, it obeys only after its probes have shown that the receiver gives feedback.
    """
    return tidegate.start(
        stage,
        [to.port],
        profile,
        name=f"sender-{index}",
        mode=mode,
        pool="" if health else 'obey_feedback = "always"\n',
        tables=(health or "") + '[overload]\nlaw = "none"\n[overload.feedback]\nalgorithms = ["loss", "rate"]\n',
    )


def jain(values: Sequence[float]) -> float | None:
    """Returns Jain's index of fairness: 1 if all values are equal. `None` if there are fewer than two, or all are 0."""
    squares = sum(value**2 for value in values)
    return sum(values) ** 2 / (len(values) * squares) if len(values) > 1 and squares else None
