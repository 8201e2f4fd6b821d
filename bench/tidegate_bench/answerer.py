"""A callee that answers whatever is asked within its calls, from wherever it comes.

SIPp's sends all responses of a call to where its first request came from. Where several elements
take turns in one call (RFC 3261 §18.2.2 has each response go where its own request came from) that
element may be gone.
"""

from dataclasses import dataclass, field

from tidegate_bench.message import value
from tidegate_bench.uas import UserAgentServer


@dataclass
class Answered:
    """What it has seen of its calls, by Call-ID."""

    invites: dict[str, set[int]] = field(default_factory=dict)
    """CSeq numbers of INVITEs: two of a call that was changed once."""
    ended: set[str] = field(default_factory=set)
    """Calls that had a BYE."""
    stray: int = 0
    """Requests within a call of which it has not seen the beginning: refused."""
    repeated: int = 0
    """INVITEs and BYEs seen before."""

    def whole(self, invites: int) -> int:
        """Calls that had so many INVITEs and a BYE."""
        return sum(len(seen) == invites and call in self.ended for call, seen in self.invites.items())


class Answerer(UserAgentServer):
    """Answers 200 at once, until it is closed."""

    def __init__(self) -> None:
        self.answered = Answered()
        super().__init__()

    def close(self) -> Answered:
        """Ends it, and returns what it has seen."""
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
