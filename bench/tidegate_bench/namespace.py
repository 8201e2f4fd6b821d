"""Network namespaces: separate networks for the peers of a demonstration on one machine."""

import contextlib
import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Iterator

from tidegate_bench.process import Process, Stage

_INSIDE = "TIDEGATE_NAMESPACE"
_CLONE_NEWNET = 0x40000000


def enter_own() -> None:
    """Runs this script again in a new network namespace. Without root, it also makes a user namespace."""
    # Debian has ip, nft and kamailio there.
    os.environ["PATH"] += ":/usr/sbin"
    if _INSIDE in os.environ:
        run("ip", "link", "set", "lo", "up")
        return
    how = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*how, "true"], check=False).returncode:
        sys.exit("network namespaces need root, or a kernel that lets users make them")
    os.environ[_INSIDE] = "yes"
    os.execvp("unshare", [*how, sys.executable, *sys.argv])


def run(*command: object) -> None:
    """Runs a command that must succeed."""
    subprocess.run(list(map(str, command)), check=True)


class Namespace:
    """Another network namespace, for as long as its process lives."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.process = stage.start(name, ["unshare", "--net", "sleep", "infinity"])
        self.file = f"/proc/{self.process.pid}/ns/net"
        self._stage = stage
        deadline = time.monotonic() + 10
        while os.readlink(self.file) == os.readlink("/proc/self/ns/net"):
            if time.monotonic() > deadline or not self.process.running():
                sys.exit(f"cannot make a network namespace for {name}:\n{self.process.tail()}")
            time.sleep(0.01)
        self.run("ip", "link", "set", "lo", "up")

    def command(self, command: list[str]) -> list[str]:
        """Returns the command that runs another one in the namespace."""
        return ["nsenter", f"--net={self.file}", "--", *command]

    def run(self, *command: object) -> None:
        """Runs a command in the namespace, which must succeed."""
        run(*self.command(list(map(str, command))))

    def start(self, name: str, command: list[str], settle_s: float = 0.0) -> Process:
        """Starts a program in the namespace. It must still run after `settle_s`."""
        process = self._stage.start(name, self.command(command))
        time.sleep(settle_s)
        if settle_s and not process.running():
            sys.exit(f"{name} ended:\n{process.tail()}")
        return process

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Puts this thread, its child processes and its new sockets into the namespace, until the end of the block."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/ns/net") as own, open(self.file) as other:
            if libc.setns(other.fileno(), _CLONE_NEWNET):
                sys.exit(f"cannot enter the network namespace: {os.strerror(ctypes.get_errno())}")
            try:
                yield
            finally:
                libc.setns(own.fileno(), _CLONE_NEWNET)


End = tuple[str, str, Namespace | None]


def link(one: End, other: End) -> None:
    """Joins two namespaces by a link.

    Each end has the name of its interface, its addresses (separated by spaces), and its namespace. `None` is the
    namespace of this process.
    """
    run("ip", "link", "add", one[0], "type", "veth", "peer", "name", other[0])
    for name, addresses, where in (one, other):
        if where:
            run("ip", "link", "set", name, "netns", where.process.pid)
        inside = where.run if where else run
        for address in addresses.split():
            inside("ip", "address", "add", f"{address}/24", "dev", name)
        inside("ip", "link", "set", name, "up")
