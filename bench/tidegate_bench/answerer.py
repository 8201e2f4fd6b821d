"""A callee that answers every request of a call, also if the requests come from different sources.

SIPp sends all responses of a call to the source of the call's first request. By RFC 3261 §18.2.2 each response goes
to the source of its own request. If several elements take turns in one call, the first element may no longer exist.
"""

from dataclasses import dataclass, field

from tidegate_bench.message import value
from tidegate_bench.uas import UserAgentServer


@dataclass
class Answered:
    """The requests that the callee has received, by Call-ID."""

    invites: dict[str, set[int]] = field(default_factory=dict)
    """The CSeq numbers of the INVITEs of each call. A call with one re-INVITE has two."""
    ended: set[str] = field(default_factory=set)
    """Calls that had a BYE."""
    stray: int = 0
    """In-dialog requests of calls whose first INVITE the callee has not received. It rejects them with 481."""
    repeated: int = 0
    """Retransmitted INVITEs and BYEs."""

    def whole(self, invites: int) -> int:
        """Returns the number of calls that had this number of INVITEs, and a BYE."""
        return sum(len(seen) == invites and call in self.ended for call, seen in self.invites.items())


class Answerer(UserAgentServer):
    """Answers 200 at once, until it is closed."""

    def __init__(self) -> None:
        self.answered = Answered()
        super().__init__()

    def close(self) -> Answered:
        """Ends the callee, and returns the requests that it has received."""
        self.stop()
        return self.answered

    def responses(self, method: str, request: bytes) -> list[bytes]:
        call = value(request, "Call-ID")
        number = int(value(request, "CSeq").split()[0])
        if ";tag=" in value(request, "To") and call not in self.answered.invites:
            self.answered.stray += 1
            return [self.response(request, "481 Call/Transaction Does Not Exist")]
        if method == "INVITE":
            seen = self.answered.invites.setdefault(call, set())
            self.answered.repeated += number in seen
            seen.add(number)
        elif method == "BYE":
            self.answered.repeated += call in self.answered.ended
            self.answered.ended.add(call)
        return [self.response(request, "200 OK")]
