"""A user agent server at its own address."""

import re
import socket
import threading

from tidegate_bench.message import value
from tidegate_bench.sockets import LOCALHOST

_BUFFER_BYTES = 4 * 1024 * 1024
_COPIED = re.compile(rb"^(?:Via|Record-Route|From|Call-ID|CSeq):[^\r]*\r\n", re.I | re.M)


class UserAgentServer:
    """Answers requests on a thread of its own, until it is closed."""

    def __init__(self, host: str = LOCALHOST) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        self._socket.bind((host, 0))
        self._socket.settimeout(0.1)
        self.port: int = self._socket.getsockname()[1]
        self.address = f"{host}:{self.port}"
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def responses(self, method: str, request: bytes) -> list[bytes]:
        """Returns the responses to a request other than ACK."""
        raise NotImplementedError

    def response(self, request: bytes, status: str, more: str = "", body: str = "") -> bytes:
        """Returns a response with further header lines and a body. A To without a tag gets one."""
        to = value(request, "To")
        tag = "" if ";tag=" in to else f";tag={self.port}"
        rest = f"To: {to}{tag}\r\nContact: <sip:{self.address}>\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}"
        head = f"SIP/2.0 {status}\r\n".encode()
        return b"".join((head, *_COPIED.findall(request), rest.encode()))

    def stop(self) -> None:
        """Ends the thread and closes the socket."""
        self._closing.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                request, source = self._socket.recvfrom(65535)
            except TimeoutError:
                continue
            method = request.split(b" ", 1)[0].decode()
            if method in ("ACK", "SIP/2.0"):
                continue
            for response in self.responses(method, request):
                # RFC 3581 §4: the response goes to the source, because the Via has rport.
                self._socket.sendto(response, source)
