"""A back end with special numbers: some answer, and others reject, ring forever or are silent.

It is a user agent server that is strict about dialogs: a BYE ends a call only if its tags match (RFC 3261 §12.2.2). So
it counts the calls that a back end really has, even if a proxy counts others.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from tidegate_bench.message import value
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.uas import UserAgentServer

_SDP = "v=0\r\n" + "a=filler:" + 900 * "x" + "\r\n"
_UNKNOWN_CALL = "481 Call/Transaction Does Not Exist"
# The numbers that reject an INVITE at once, and their statuses.
_REJECTIONS = {"overloaded": "503 Service Unavailable", "nobody": "404 Not Found"}
_RETRY_AFTER = "Retry-After: 3600\r\n"


@dataclass
class Seen:
    """Requests and dialogs that reached the back end, by the user part of their From."""

    requests: Counter[str] = field(default_factory=Counter)
    """INVITEs without retransmissions. A retransmission has the topmost Via of an earlier INVITE."""
    live: Counter[str] = field(default_factory=Counter)
    """Calls that were answered and have not ended."""
    live_max: Counter[str] = field(default_factory=Counter)
    wrong_tags: int = 0
    """BYEs whose tags belong to no call here. They are rejected with 481."""


class Exchange(UserAgentServer):
    """Answers requests until it is closed.

    The number `overloaded` answers 503 with `Retry-After: 3600`, and `nobody` answers 404. `ringing` answers 183 with
    900 bytes of SDP and then nothing. `rejecting` answers the same and then 486. `silent` does not answer.
    """

    def __init__(self, host: str = LOCALHOST) -> None:
        self.seen = Seen()
        self._copies: dict[str, list[bytes]] = {}
        self._dialogs: dict[tuple[str, str], str] = defaultdict(str)
        super().__init__(host)

    def close(self) -> Seen:
        """Ends the back end, and returns all counts."""
        self.stop()
        return self.seen

    def responses(self, method: str, request: bytes) -> list[bytes]:
        key = method + value(request, "Via")
        if key not in self._copies:
            self._copies[key] = self._answer(method, request)
        return self._copies[key]

    def _answer(self, method: str, request: bytes) -> list[bytes]:
        to, from_ = value(request, "To"), value(request, "From")
        call = (value(request, "Call-ID"), _tag(from_))
        caller = _user(from_)
        if method == "INVITE":
            self.seen.requests[caller] += 1
            number = _user(request.split(b" ", 2)[1].decode())
            if ";tag=" in to and self._dialogs.get(call) != _tag(to):
                return [self.response(request, _UNKNOWN_CALL)]
            if number == "silent":
                return []
            if number in _REJECTIONS:
                more = _RETRY_AFTER if number == "overloaded" else ""
                return [self.response(request, _REJECTIONS[number], more)]
            if number in ("ringing", "rejecting"):
                rings = [self.response(request, "183 Session Progress", body=_SDP)]
                rejects = [self.response(request, "486 Busy Here")]
                return rings + (rejects if number == "rejecting" else [])
            if ";tag=" not in to:
                self._dialogs[call] = str(self.port)
                self.seen.live[caller] += 1
                self.seen.live_max[caller] = max(self.seen.live_max[caller], self.seen.live[caller])
        elif method == "BYE":
            if self._dialogs.get(call) != _tag(to):
                self.seen.wrong_tags += 1
                return [self.response(request, _UNKNOWN_CALL)]
            del self._dialogs[call]
            self.seen.live[caller] -= 1
        return [self.response(request, "200 OK")]


def _tag(address: str) -> str:
    return address.partition(";tag=")[2].partition(";")[0]


def _user(uri: str) -> str:
    return uri.partition("sip:")[2].partition("@")[0]
