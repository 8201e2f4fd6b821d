"""A back end whose numbers behave: some answer, others reject, ring for ever or stay silent.

It is a user agent server that is strict about dialogs: a BYE ends a call only if its tags match, as
RFC 3261 §12.2.2 has it. So its counts say what a back end really holds, whatever a proxy believes.
"""

import re
import socket
import threading
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from .sockets import LOCALHOST

_BUFFER_BYTES = 4 * 1024 * 1024
_COPIED = re.compile(rb"^(?:Via|Record-Route|From|Call-ID|CSeq):[^\r]*\r\n", re.I | re.M)
_SDP = "v=0\r\n" + "a=filler:" + 900 * "x" + "\r\n"
# Statuses with which the numbers of these names answer an INVITE; any other number answers 200.
_REJECTIONS = {"overloaded": "503 Service Unavailable", "nobody": "404 Not Found"}
_RETRY_AFTER = "Retry-After: 3600\r\n"


@dataclass
class Seen:
    """Requests and dialogs that reached the back end, by the user part of their From."""

    requests: Counter[str] = field(default_factory=Counter)
    """Distinct INVITEs: two copies share Call-ID, From-tag, CSeq and Request-URI (RFC 3261 §8.2.2.2)."""
    live: Counter[str] = field(default_factory=Counter)
    """Calls answered and not ended."""
    live_max: Counter[str] = field(default_factory=Counter)
    wrong_tags: int = 0
    """BYEs with tags of no call here: rejected with 481."""


class Exchange:
    """Answers at an address of its own, on a thread of its own, until it is closed.

    The number `overloaded` answers 503 with `Retry-After: 3600`, `nobody` 404, `ringing` 183 with
    900 bytes of SDP and then nothing, `rejecting` the same and then 486, and `silent` nothing.
    """

    def __init__(self, host: str = LOCALHOST) -> None:
        self.seen = Seen()
        self._copies: dict[bytes, list[bytes]] = {}
        self._dialogs: dict[tuple[str, str], str] = defaultdict(str)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.bind((host, 0))
        self._socket.settimeout(0.1)
        self.port: int = self._socket.getsockname()[1]
        self.address = f"{host}:{self.port}"
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> Seen:
        """Ends it, and returns all that it has seen."""
        self._closing.set()
        self._thread.join()
        self._socket.close()
        return self.seen

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                request, source = self._socket.recvfrom(65535)
            except TimeoutError:
                continue
            for response in self._responses(request):
                # RFC 3581 §4: to the source, for a Via with rport asks for that.
                self._socket.sendto(response, source)

    def _responses(self, request: bytes) -> list[bytes]:
        method, uri = request.split(b" ", 2)[:2]
        if method in (b"ACK", b"SIP/2.0"):
            return []
        key = method + _value(request, b"Via")
        if key not in self._copies:
            self._copies[key] = self._answer(method.decode(), uri.decode(), request)
        return self._copies[key]

    def _answer(self, method: str, uri: str, request: bytes) -> list[bytes]:
        to, from_ = _value(request, b"To").decode(), _value(request, b"From").decode()
        call = (_value(request, b"Call-ID").decode(), _tag(from_))
        caller = _user(from_)
        if method == "INVITE":
            self.seen.requests[caller] += 1
            number = _user(uri)
            if ";tag=" in to and self._dialogs.get(call) != _tag(to):
                return [self._response(request, "481 Call/Transaction Does Not Exist", to)]
            if number == "silent":
                return []
            if number in _REJECTIONS:
                more = _RETRY_AFTER if number == "overloaded" else ""
                return [self._response(request, _REJECTIONS[number], to, more)]
            if number in ("ringing", "rejecting"):
                rings = [self._response(request, "183 Session Progress", to, body=_SDP)]
                rejects = [self._response(request, "486 Busy Here", to)]
                return rings + (rejects if number == "rejecting" else [])
            if ";tag=" not in to:
                self._dialogs[call] = str(self.port)
                self.seen.live[caller] += 1
                self.seen.live_max[caller] = max(self.seen.live_max[caller], self.seen.live[caller])
        elif method == "BYE":
            if self._dialogs.get(call) != _tag(to):
                self.seen.wrong_tags += 1
                return [self._response(request, "481 Call/Transaction Does Not Exist", to)]
            del self._dialogs[call]
            self.seen.live[caller] -= 1
        return [self._response(request, "200 OK", to)]

    def _response(
        self, request: bytes, status: str, to: str, more: str = "", body: str = ""
    ) -> bytes:
        tag = "" if ";tag=" in to else f";tag={self.port}"
        rest = (
            f"To: {to}{tag}\r\nContact: <sip:{self.address}>\r\n{more}"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        )
        head = f"SIP/2.0 {status}\r\n".encode()
        return b"".join((head, *_COPIED.findall(request), rest.encode()))


def _value(request: bytes, name: bytes) -> bytes:
    found = re.search(rb"^" + name + rb":[ \t]*([^\r]*)\r$", request, re.I | re.M)
    return found[1] if found else b""


def _tag(value: str) -> str:
    return value.partition(";tag=")[2].partition(";")[0]


def _user(uri: str) -> str:
    return uri.partition("sip:")[2].partition("@")[0]
