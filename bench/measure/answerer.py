"""A callee that answers whatever is asked within its calls, from wherever it comes.

SIPp's sends all responses of a call to where its first request came from. Where several elements
take turns in one call (RFC 3261 §18.2.2 has each response go where its own request came from) that
element may be gone.
"""

import re
import socket
import threading
from dataclasses import dataclass, field

from .sockets import LOCALHOST

_BUFFER_BYTES = 4 * 1024 * 1024
_COPIED = re.compile(rb"^(?:Via|Record-Route|From|Call-ID|CSeq):[^\r]*\r\n", re.I | re.M)
_FIELD = r"^{}:[ \t]*([^\r]*)\r$"


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


class Answerer:
    """Answers 200 at once, on a thread of its own, until it is closed."""

    def __init__(self) -> None:
        self.answered = Answered()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.bind((LOCALHOST, 0))
        self._socket.settimeout(0.1)
        self.port: int = self._socket.getsockname()[1]
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> Answered:
        """Ends it, and returns what it has seen."""
        self._closing.set()
        self._thread.join()
        self._socket.close()
        return self.answered

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                request, source = self._socket.recvfrom(65535)
            except TimeoutError:
                continue
            method = request.split(b" ", 1)[0].decode()
            if method not in ("ACK", "SIP/2.0"):
                # RFC 3581 §4: to the source, for our Via asks for that by its rport.
                self._socket.sendto(self._response(method, request), source)

    def _response(self, method: str, request: bytes) -> bytes:
        call, to = _value(request, "Call-ID"), _value(request, "To")
        number = int(_value(request, "CSeq").split()[0])
        status = "200 OK"
        if ";tag=" in to and call not in self.answered.invites:
            self.answered.stray += 1
            status = "481 Call/Transaction Does Not Exist"
        elif method == "INVITE":
            seen = self.answered.invites.setdefault(call, set())
            self.answered.repeated += number in seen
            seen.add(number)
        elif method == "BYE":
            self.answered.repeated += call in self.answered.ended
            self.answered.ended.add(call)
        tag = "" if ";tag=" in to else f";tag={self.port}"
        contact = f"Contact: <sip:{LOCALHOST}:{self.port}>\r\nContent-Length: 0\r\n\r\n"
        copied = b"".join(_COPIED.findall(request))
        return b"".join(
            (f"SIP/2.0 {status}\r\n".encode(), copied, f"To: {to}{tag}\r\n{contact}".encode())
        )


def _value(request: bytes, name: str) -> str:
    found = re.search(_FIELD.format(name), request.decode(), re.I | re.M)
    return found[1] if found else ""
