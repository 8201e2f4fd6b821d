"""Kamailio in front of one back end, with or without its own overload control."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from tidegate_bench.access import Certificate
from tidegate_bench.process import NS, Process, Stage
from tidegate_bench.quota import Quota
from tidegate_bench.record import ROOT
from tidegate_bench.sockets import LOCALHOST, free_port

# The size of the socket buffer when CPU time is compared: the same for all elements.
_BUFFER_BYTES = 4 * 1024 * 1024
# Shared memory in MB. Kamailio keeps some KiB of every transaction for some seconds.
_TRANSACTIONS_MIB = 1024
# This definition has the largest number of connections. With it, a configuration file accepts callers over TCP.
_TCP = "TCP_MAX"
# This definition has the file of the private key. With it, callers use TLS instead of TCP.
_TLS = "TLS_KEY"
# Descriptors for everything except connections.
_OTHER_FILES = 100
# Kamailio's default size of the socket buffer. Messages that wait in a larger buffer are served too late.
DEFAULT_BUFFER_BYTES = 256 * 1024


class Kamailio:
    """One running Kamailio with a single UDP worker."""

    def __init__(self, process: Process, port: int) -> None:
        self.process = process
        self.port = port

    @property
    def address(self) -> str:
        return f"{LOCALHOST}:{self.port}"


def command(
    stage: Stage,
    file: Path,
    host: str,
    port: int,
    defines: Mapping[str, str],
    *,
    transactions: bool = False,
    allocator: str | None = "fm",
) -> list[str]:
    """Returns the command of a Kamailio with this file and these definitions.

    The default `allocator` is the fast one, for shared and for private memory. `None` is that of Debian's package,
    which checks each block. If `TCP_MAX` is defined, Kamailio listens for TCP too, at the same port. If `TLS_KEY` is
    defined as well, it listens for TLS instead of TCP.
    """
    scratch = str(stage.directory)
    words = ["kamailio", "-f", str(file), "-DD", "-E", "-l", f"udp:{host}:{port}", "-M", "8"]
    if _TCP in defines:
        words += ["-l", f"{'tls' if _TLS in defines else 'tcp'}:{host}:{port}"]
    # README of the module tls, §1: the exit functions of the TLS library may crash a process that ends.
    words += ["--atexit=no"] if _TLS in defines else []
    words += ["-m", str(_TRANSACTIONS_MIB if transactions else 64)]
    words += ["-x", allocator, "-X", allocator] if allocator else []
    words += [word for name, value in defines.items() for word in ("-A", f"{name}={value}" if value else name)]
    return [*words, "-w", scratch, "-Y", scratch, "-P", f"{scratch}/kamailio-{host}-{port}.pid"]


def run(
    stage: Stage,
    backend_port: int,
    *,
    configuration: str = "kamailio.cfg",
    transactions: bool = False,
    buffer_bytes: int = _BUFFER_BYTES,
    defines: Mapping[str, str] | None = None,
    quota: Quota | None = None,
    allocator: str | None = "fm",
    connections_max: int = 0,
    certificate: Certificate | None = None,
) -> Kamailio:
    """Starts Kamailio with a configuration file of `bench/`. `defines` are further definitions for this file.

    With `transactions` it forwards with `t_relay()`, if the file supports this. With `connections_max` callers may use
    TCP too, or TLS if there is a `certificate`.
    """
    named = {"BACKEND_HOST": LOCALHOST, "BACKEND_PORT": str(backend_port), "BUFFER": str(buffer_bytes)}
    named |= {"T_RELAY_TO": f'"{LOCALHOST}", "{backend_port}"'} if transactions else {}
    if connections_max:
        named |= {_TCP: str(connections_max), "OPEN_FILES": str(connections_max + _OTHER_FILES)}
    if certificate:
        named |= {_TLS: f'"{certificate.key}"', "TLS_CERTIFICATE": f'"{certificate.file}"'}
    return _serve(stage, configuration, named | dict(defines or {}), transactions, allocator, quota)


def dispatch(stage: Stage, destinations: list[str], algorithm: int, *, transactions: bool = False) -> Kamailio:
    """Starts a Kamailio that balances calls among destinations (`ADDRESS:PORT`) with a dispatcher algorithm."""
    listed = stage.directory / "dispatcher.list"
    # Algorithm 10 counts calls by the attribute `duid`.
    lines = [f"1 sip:{where} 0 0 duid=d{index}\n" for index, where in enumerate(destinations)]
    listed.write_text("".join(lines))
    named = {"DESTINATIONS": f'"{listed}"', "ALGORITHM": f'"{algorithm}"', "BUFFER": str(_BUFFER_BYTES)}
    named |= {"TRANSACTIONS": ""} if transactions else {}
    # The dispatcher module keeps the state of calls, so Kamailio gets the memory for transactions in any case.
    return _serve(stage, "kamailio-dispatcher.cfg", named, True, "fm", None)


def _serve(
    stage: Stage,
    configuration: str,
    defines: Mapping[str, str],
    transactions: bool,
    allocator: str | None,
    quota: Quota | None,
) -> Kamailio:
    port, file = free_port(), ROOT / "bench" / configuration
    words = command(stage, file, LOCALHOST, port, defines, transactions=transactions, allocator=allocator)
    return Kamailio(stage.serve("kamailio", words, port, quota=quota, over_streams=_TCP in defines), port)


# The interval at which the load is reported: twenty periods of a quota of 5 ms.
_TELL_S = 0.1


class LoadTeller:
    """Reports to the ratelimit module how much of its quota Kamailio uses.

    The module's FEEDBACK algorithm reads /proc/stat, the load of the whole machine, which does not show the load of a
    process under a quota. The command `rl.push_load` is the other source that the module offers.
    """

    def __init__(self, process: Process, socket_file: Path, share: float) -> None:
        self._process = process
        self._server = socket_file
        self._share = share
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> "LoadTeller":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _tell(self) -> None:
        pids = self._process.pids()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.bind(f"{self._server}.answers")
            sender.setblocking(False)
            used_ns, at = _cpu_ns(pids), time.monotonic()
            while not self._over.wait(_TELL_S):
                now_ns, now = _cpu_ns(pids), time.monotonic()
                load = (now_ns - used_ns) / NS / (now - at) / self._share
                used_ns, at = now_ns, now
                # Send a number: the module reads a string as 0.
                params = [float(min(load, 1.0))]
                command = {"jsonrpc": "2.0", "method": "rl.push_load", "params": params, "id": 1}
                # An overloaded Kamailio may not have read the last values. The next one is enough.
                with contextlib.suppress(OSError):
                    sender.sendto(json.dumps(command).encode(), str(self._server))
                with contextlib.suppress(OSError):
                    while sender.recv(4096):
                        pass


def _cpu_ns(pids: list[int]) -> int:
    total = 0
    for pid in pids:
        try:
            total += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        except (OSError, IndexError):
            continue
    return total
