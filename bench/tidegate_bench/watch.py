"""The tables of a Tidegate: its entries for calls and transactions, until there are none."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass
class Watch:
    """The largest observed numbers of entries."""

    edge: Edge
    most: Held = field(default_factory=lambda: Held(0, 0, 0))

    def look(self) -> Held:
        now = held(self.edge)
        self.most = Held(*map(max, self.most, now))
        return now

    def empty(self) -> tuple[bool, str]:
        """Waits as `until_empty` does.

        Returns whether there were entries of each kind and none is left, and a sentence about the result.
        """
        kept, after_s = self.until_empty()
        text = (
            f"{after_s:.1f} s after the last call: {kept.server_transactions} server and {kept.client_transactions} "
            f"client transactions, {kept.calls} calls (at most {self.most.server_transactions:,}, "
            f"{self.most.client_transactions:,} and {self.most.calls:,})"
        )
        return all(self.most) and not any(kept), text

    def while_(self, running: Callable[[], bool], patience_s: float) -> bool:
        """Reads the tables several times a second while `running` is true. Returns False if that takes too long."""
        until = time.monotonic() + patience_s
        while running():
            if time.monotonic() > until:
                return False
            self.look()
            time.sleep(0.2)
        return True

    def until_empty(self) -> tuple[Held, float]:
        """Waits until the tables are empty, or should be. Returns the remaining entries, and the time that it took."""
        begun = time.monotonic()
        while any(now := self.look()) and time.monotonic() - begun < FORGOTTEN_S + _GRACE_S:
            time.sleep(0.2)
        return now, time.monotonic() - begun
