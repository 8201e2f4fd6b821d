"""The sockets of this machine: free ports, bound ports, dropped datagrams."""

import os
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LOCALHOST = "127.0.0.1"
# The state of a listening socket in /proc/net/tcp.
_LISTEN = "0A"
_PROC = Path("/proc")
_given: set[int] = set()


class _Socket(NamedTuple):
    port: int
    inode: str
    drops: int


def free_port() -> int:
    """Returns a port that is free for UDP and TCP now. This script never gets the same port twice."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
        ):
            datagram.bind((LOCALHOST, 0))
            port: int = datagram.getsockname()[1]
            try:
                stream.bind((LOCALHOST, port))
            except OSError:
                continue
        if port not in _given:
            _given.add(port)
            return port


def bound(port: int) -> bool:
    """Returns whether any UDP socket of this machine is bound to `port`."""
    return any(entry.port == port for entry in _sockets(_PROC))


def listening(port: int) -> bool:
    """Returns whether any TCP socket of this machine listens on `port`."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = Path(table).read_text().splitlines()[1:] if Path(table).exists() else []
        for line in lines:
            field = line.split()
            if field[3] == _LISTEN and int(field[1].rpartition(":")[2], 16) == port:
                return True
    return False


def drops(pids: Iterable[int]) -> int:
    """Returns how many datagrams the UDP sockets of these processes have dropped so far.

    The processes may be in other network namespaces than this script.
    """
    held: dict[str, set[str]] = {}
    places: dict[str, Path] = {}
    for pid in pids:
        place = _PROC / str(pid)
        try:
            namespace = os.readlink(place / "ns/net")
        except OSError:
            # The process has ended.
            continue
        places[namespace] = place
        held.setdefault(namespace, set()).update(_inodes(place))
    found = ((entry, held[namespace]) for namespace, place in places.items() for entry in _sockets(place))
    return sum(entry.drops for entry, inodes in found if entry.inode in inodes)


def buffer_bytes(port: int) -> int:
    """Returns the size of the receive buffer of the UDP socket at `port`, as the kernel counts it."""
    command = ["ss", "-uamnH", f"sport = :{port}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"skmem:\(r\d+,rb(\d+)", shown)
    assert found, f"ss shows the socket: {shown}"
    return int(found[1])


def _sockets(place: Path) -> Iterator[_Socket]:
    """Yields the UDP sockets of the namespace of the process with this folder of /proc (`/proc` for this script)."""
    for table in ("net/udp", "net/udp6"):
        try:
            lines = (place / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            field = line.split()
            port = int(field[1].rpartition(":")[2], 16)
            yield _Socket(port, inode=field[9], drops=int(field[12]))


def _inodes(place: Path) -> Iterator[str]:
    directory = place / "fd"
    try:
        descriptors = os.listdir(directory)
    except OSError:
        return
    for descriptor in descriptors:
        try:
            target = os.readlink(directory / descriptor)
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target[len("socket:[") : -1]
