"""The tables of a Tidegate: its entries for calls and transactions, until there are none."""

import time
from typing import NamedTuple

from tidegate_bench.tidegate import Edge

# RFC 3261 §17: no transaction lasts longer than 64·T1 and T4 without a message.
FORGOTTEN_S = 32.0 + 5.0
# Time until a gauge is published and this script has read it.
_GRACE_S = 3.0


class Held(NamedTuple):
    """The numbers of entries at one moment."""

    server_transactions: int
    client_transactions: int
    calls: int


def held(edge: Edge) -> Held:
    """Returns the present numbers of entries."""
    metrics = edge.metrics()
    return Held(*(int(metrics.value(name)) for name in Held._fields))


def until_empty(edge: Edge) -> Held:
    """Waits until the tables are empty, or should be. Returns the remaining entries."""
    begun = time.monotonic()
    while any(now := held(edge)) and time.monotonic() - begun < FORGOTTEN_S + _GRACE_S:
        time.sleep(0.2)
    return now
