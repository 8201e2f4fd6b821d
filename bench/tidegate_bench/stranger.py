"""A stranger on the network: it sends any requests, from any address of the loopback network."""

import itertools
import random
import socket
import struct
import time
from collections.abc import Callable, Iterable

from tidegate_bench import message
from tidegate_bench.sockets import LOCALHOST

# An address that no back end and no normal caller has.
HOST = "127.0.0.66"
_ICMP_PORT_UNREACHABLE = (3, 3)


class Stranger:
    """A socket from which demonstrations send any message, with counts of the bytes sent and received."""

    def __init__(self, edge: str, seed: int, host: str = HOST) -> None:
        name, _, port = edge.rpartition(":")
        self._target = (name, int(port))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 1024 * 1024)
        self._socket.bind((host, 0))
        self._socket.setblocking(False)
        self.draw = random.Random(seed)
        self.edge = edge
        self.here = f"{host}:{self._socket.getsockname()[1]}"
        self.sent = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self._socket.close()

    def token(self) -> str:
        """Returns a word that was never used before."""
        return f"{next(self._numbers)}x{self.draw.getrandbits(48):x}"

    def request(
        self,
        method: str,
        number: str,
        *,
        call: str | None = None,
        from_tag: str | None = None,
        to_tag: str | None = None,
        branch: str | None = None,
        cseq: int = 1,
        more: str = "",
        body: str = "",
    ) -> bytes:
        """Returns a request to a number at the edge proxy. Identifiers that are not given are new."""
        uri = f"sip:{number}@{self.edge}"
        return message.request(
            method,
            uri,
            self.here,
            branch=branch or f"z9hG4bK{self.token()}",
            from_tag=from_tag or self.token(),
            call=call or self.token(),
            cseq=cseq,
            to=f"<{uri}>;tag={to_tag}" if to_tag else None,
            via=";rport",
            more=more,
            body=body,
        )

    def send(self, data: bytes) -> None:
        """Sends a message. Reads and counts the messages that have arrived meanwhile, and discards them."""
        while True:
            try:
                self._socket.sendto(data, self._target)
                break
            except BlockingIOError:
                time.sleep(0.001)
        self.sent += 1
        self.sent_bytes += len(data)
        self.take()

    def take(self) -> list[bytes]:
        """Returns the messages that have arrived and were not returned before, and counts their bytes."""
        taken = []
        while True:
            try:
                taken.append(self._socket.recv(65535))
            except (BlockingIOError, ConnectionRefusedError):
                self.received_bytes += sum(map(len, taken))
                return taken

    def wait(self, status: int, seconds: float) -> bytes | None:
        """Returns the next response with this status, or None if none arrives in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for taken in self.take():
                if taken.startswith(f"SIP/2.0 {status} ".encode()):
                    return taken
            time.sleep(0.005)
        return None

    def flood(self, messages: Callable[[], bytes], rate: float, seconds: float) -> None:
        """Sends messages at a rate, for a time."""
        begun = time.monotonic()
        for number in itertools.count():
            due = number / rate
            if due >= seconds:
                return
            ahead = begun + due - time.monotonic()
            if ahead > 0.002:
                time.sleep(ahead)
            self.send(messages())


def forged_icmp(edge: str, backends: Iterable[str], times: int) -> None:
    """Sends the edge proxy forged ICMP reports which say that nothing listens at its back ends. They quote only
    addresses.

    RFC 792: a port unreachable carries the IP header and the first 8 bytes of the datagram that it
    is about. Needs CAP_NET_RAW.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        for _ in range(times):
            for backend in backends:
                raw.sendto(_port_unreachable(edge, backend), (LOCALHOST, 0))
            time.sleep(0.1)


def _port_unreachable(edge: str, backend: str) -> bytes:
    source, destination = (address.rpartition(":") for address in (edge, backend))
    udp = struct.pack("!HHHH", int(source[2]), int(destination[2]), 8, 0)
    ip = struct.pack(
        "!BBHHHBBH4s4s",
        0x45,
        0,
        20 + len(udp),
        1,
        0,
        64,
        socket.IPPROTO_UDP,
        0,
        socket.inet_aton(source[0]),
        socket.inet_aton(destination[0]),
    )
    kind, code = _ICMP_PORT_UNREACHABLE
    message = struct.pack("!BBHI", kind, code, 0, 0) + ip + udp
    return struct.pack("!BBHI", kind, code, _checksum(message), 0) + ip + udp


def _checksum(data: bytes) -> int:
    """Returns the checksum of RFC 1071: the ones' complement of the ones' complement sum of all 16-bit words."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
