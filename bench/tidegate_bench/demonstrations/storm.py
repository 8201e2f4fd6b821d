"""Attacks over TCP and TLS beside 300 normal calls/s: every call is in time, and memory stays within its limit

Normal callers make 200 calls/s over UDP and 100 calls/s over TCP. Over TCP each call opens its own connection. The
attacks come from other addresses of the loopback network. The times of `[connections]` are shorter than the defaults,
so that they end during the run.

The first run has no attack. In the other runs the memory of Tidegate may grow more than in this run by `memory_max_mb`
(incomplete messages and handshakes), a fixed number of bytes for each connection of the attack that is open at the same
time, and an allowance for noise.
"""

import argparse
import itertools
import os
import random
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tidegate_bench import access, tidegate
from tidegate_bench.access import Certificate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.demonstrations.strangers import AFTER_S, ATTACK_AFTER_S, Row, Watch
from tidegate_bench.process import Cores, Stage
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.stranger import HOST, Stranger
from tidegate_bench.tidegate import Edge, Metrics

RATES_CPS = {"udp": 200, "tcp": 100}
OFFERED_S = 12.0
HOLD_S = 1.0
STORM_PER_S = 10_000
STORM_S = 3.0
# Addresses of the strangers. No address opens more than 28,000 connections.
HOSTS = [f"127.0.0.{100 + number}" for number in range(8)]
# The state of an open connection in TCP_INFO.
ESTABLISHED = 1
CONNECTIONS = 500
CLIENTS = 20
MEMORY_MAX_MB = 16
# An incomplete message or handshake ends its connection earlier than `first_seconds` does. If the times were equal, the
# metrics could show either cause.
SLOW_S, FIRST_S = 2, 4
LIMITS = (
    f"\n[connections]\nmemory_max_mb = {MEMORY_MAX_MB}\nfirst_seconds = {FIRST_S}\n"
    f"message_seconds = {SLOW_S}\nhandshake_seconds = {SLOW_S}\n"
)
# Bytes of an open connection besides its incomplete message or handshake: a session of TLS has buffers.
EACH_KIB = 16
NOISE_MIB = 8
# The longest time between the end of an attack and the end of its last connection.
COUNTED_S = FIRST_S + 3.0
HEADER = b"OPTIONS sip:service@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK"


class Authority:
    """A certificate authority, in files, and certificates that it signs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file, key = folder / "authority.pem", folder / "authority.key"
        self._openssl("req", "-x509", *_new(key), "-days", "2", "-subj", "/CN=authority", "-out", self.file)
        (folder / "index.txt").touch()
        self._settings = folder / "authority.cnf"
        self._settings.write_text(
            f"[ca]\ndefault_ca = own\n[own]\nnew_certs_dir = {folder}\ndatabase = {folder / 'index.txt'}\n"
            f"rand_serial = yes\ndefault_md = sha256\npolicy = any\nx509_extensions = more\ncertificate = {self.file}\n"
            f"private_key = {key}\n[any]\ncommonName = supplied\n[more]\nsubjectAltName = IP:{LOCALHOST}\n"
        )

    def expired(self, name: str) -> Certificate:
        """Signs a certificate that was valid in the year 2020."""
        file, key, asked = (self._folder / f"{name}.{kind}" for kind in ("pem", "key", "csr"))
        self._openssl("req", *_new(key), "-subj", f"/CN={name}", "-out", asked)
        valid = ("-startdate", "20200101000000Z", "-enddate", "20201231000000Z")
        self._openssl("ca", "-batch", "-notext", "-config", self._settings, *valid, "-in", asked, "-out", file)
        return Certificate(file, key)

    def _openssl(self, *words: str | Path) -> None:
        subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


def _new(key: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key)]


@contextmanager
def tls_server(certificate: Certificate) -> Iterator[int]:
    """Runs a back end over TLS that reads and never answers. Yields its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    with socket.create_server((LOCALHOST, 0)) as listening:

        def serve() -> None:
            # `shutdown` below ends `accept` by an error.
            with suppress(OSError):
                while True:
                    peer, _ = listening.accept()
                    peer.settimeout(FIRST_S)
                    with peer, suppress(OSError), context.wrap_socket(peer, server_side=True) as secure:
                        secure.recv(65535)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@dataclass
class Target:
    """A running Tidegate with its listeners, and the draws of the attack."""

    edge: Edge
    ports: dict[str, int]
    """TCP ports: `tcp`, `tls`, and `mutual` for TLS with certificates of clients."""
    client: Certificate
    draw: random.Random
    seed: int

    def connect(self, listener: str, count: int) -> list[socket.socket]:
        """Opens connections from the addresses of the strangers in turn."""
        hosts = itertools.cycle(self.draw.sample(HOSTS, len(HOSTS)))
        target = (LOCALHOST, self.ports[listener])
        opened = [socket.create_connection(target, 5, (next(hosts), 0)) for _ in range(count)]
        for connection in opened:
            connection.setblocking(False)
        return opened


@dataclass
class Outcome:
    """The counts of an attack, and the connections that it left open."""

    made: int
    """Connections, or requests to the back end, that Tidegate must count."""
    told: str = ""
    failed: int = 0
    """Requests without a clear error, or connections that the stranger could not open."""
    left: list[socket.socket] | None = None


class Attack(NamedTuple):
    run: Callable[[Target], Outcome]
    counted: Callable[[Metrics], int]
    open_max: int
    """Largest number of its connections that are open at the same time."""


def storm(listener: str) -> Callable[[Target], Outcome]:
    """Returns an attack that opens connections at a rate and resets each at once."""

    def run(target: Target) -> Outcome:
        address = (LOCALHOST, target.ports[listener])
        begun, made, waited = time.monotonic(), 0, 0
        while (passed := time.monotonic() - begun) < STORM_S:
            if made + waited >= passed * STORM_PER_S:
                time.sleep(0.001)
                continue
            with socket.socket() as one:
                # The kernel chooses the port when the connection begins, so the same port can serve several targets.
                one.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
                # A reset leaves no socket in TIME_WAIT.
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                one.setblocking(False)
                one.bind((target.draw.choice(HOSTS), 0))
                one.connect_ex(address)
                # On the loopback network a connection opens at once, unless the queue of the listener is full.
                opened = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED
            made, waited = made + opened, waited + (not opened)
        return Outcome(made, f"{(made + waited) / STORM_S:,.0f} connections/s, {waited} found the queue full")

    return run


def _trickle(target: Target) -> Outcome:
    """Sends requests one byte at a time."""
    opened = target.connect("tcp", CONNECTIONS)
    until = time.monotonic() + FIRST_S + 1
    for byte in itertools.cycle(HEADER[:80]):
        if time.monotonic() > until:
            break
        for connection in opened:
            with suppress(OSError):
                connection.send(bytes([byte]))
        time.sleep(target.draw.uniform(0.05, 0.15))
    return Outcome(len(opened), left=opened)


def sends(listener: str, data: Callable[[Target, int], bytes], count: int = CONNECTIONS) -> Callable[[Target], Outcome]:
    """Returns an attack that opens connections, sends data on each as far as Tidegate reads it, and waits."""

    def run(target: Target) -> Outcome:
        opened = target.connect(listener, count)
        rest = {connection: data(target, number) for number, connection in enumerate(opened)}
        until = time.monotonic() + FIRST_S
        while any(rest.values()) and time.monotonic() < until:
            for connection, left in rest.items():
                try:
                    rest[connection] = left[connection.send(left[:16_384]) :] if left else left
                except BlockingIOError:
                    continue
                except OSError:
                    # Tidegate has closed the connection.
                    rest[connection] = b""
            time.sleep(0.01)
        return Outcome(len(opened), left=opened)

    return run


def _half_handshake(target: Target, number: int) -> bytes:
    """Returns a ClientHello on every second connection, and a part of one on the others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    hello = outgoing.read()
    return hello if number % 2 else hello[: target.draw.randrange(1, len(hello))]


def _expired_clients(target: Target) -> Outcome:
    """Shows an expired certificate to a listener that requires certificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(target.client.file, target.client.key)
    told = []
    for connection in target.connect("mutual", CLIENTS):
        connection.settimeout(FIRST_S)
        try:
            with context.wrap_socket(connection) as secure:
                # With TLS 1.3 the client sees the alert when it reads.
                told.append("" if secure.recv(1) else "end")
        except OSError as error:
            told.append(getattr(error, "reason", None) or type(error).__name__)
        connection.close()
    alerts = sum("EXPIRED" in one for one in told)
    return Outcome(CLIENTS, f"the clients see {', '.join(sorted(set(told)))}", CLIENTS - alerts)


def _expired_backend(target: Target) -> Outcome:
    """Calls a back end whose certificate has expired. Each call must get a 5xx while Tidegate still has its INVITE."""
    stranger = Stranger(target.edge.address, target.seed)
    statuses: list[str] = []
    for _ in range(CLIENTS):
        stranger.send(stranger.request("INVITE", "service"))
        until = time.monotonic() + FIRST_S
        final = b""
        while not final and time.monotonic() < until:
            time.sleep(0.005)
            final = next((taken for taken in stranger.take() if not taken.startswith(b"SIP/2.0 1")), b"")
        statuses.append(final.partition(b"\r\n")[0].decode() or "no final response")
    stranger.close()
    errors = sum(status.startswith("SIP/2.0 5") for status in statuses)
    return Outcome(1, f"the calls get {', '.join(sorted(set(statuses)))}", CLIENTS - errors)


def _closed(*causes: str) -> Callable[[Metrics], int]:
    return lambda metrics: sum(metrics.total("connections_closed", cause=cause) for cause in causes)


def _handshakes(*outcomes: str) -> Callable[[Metrics], int]:
    return lambda metrics: sum(metrics.total("tls_handshakes", outcome=outcome) for outcome in outcomes)


def _accepted(metrics: Metrics) -> int:
    failed = sum(metrics.total("connections_failed", cause=cause) for cause in ("limit", "late", "lost"))
    return metrics.total("connections_begun", by="peer") + failed


ATTACKS: dict[str, Attack] = {
    "none": Attack(lambda _: Outcome(0), lambda _: 0, 0),
    "accept-storm": Attack(storm("tcp"), _accepted, 1024 * len(HOSTS)),
    # Tidegate does not begin the handshake of a client that has gone.
    "accept-storm-tls": Attack(storm("tls"), _handshakes("closed"), 1024 * len(HOSTS)),
    "slow-loris": Attack(_trickle, _closed("slow"), CONNECTIONS),
    "half-open": Attack(sends("tcp", lambda *_: b""), _closed("idle"), CONNECTIONS),
    "half-handshake": Attack(sends("tls", _half_handshake), _handshakes("slow"), CONNECTIONS),
    "content-length": Attack(
        sends("tcp", lambda *_: HEADER + b"1\r\nContent-Length: 1000000000\r\n\r\n" + bytes(100_000)),
        _closed("garbled"),
        CONNECTIONS,
    ),
    # Nine of ten headers are shorter than the longest message.
    "endless-header": Attack(
        sends("tcp", lambda _, number: HEADER + (60_000 if number % 10 else 200_000) * b"x"),
        _closed("garbled"),
        CONNECTIONS,
    ),
    # These messages are short enough, but together they exceed `memory_max_mb`. The rest of each never arrives.
    "incomplete-bodies": Attack(
        sends("tcp", lambda *_: HEADER + b"1\r\nContent-Length: 60000\r\n\r\n" + bytes(55_000)),
        _closed("memory", "slow"),
        CONNECTIONS,
    ),
    "tls-garbage": Attack(
        sends("tls", lambda target, _: target.draw.randbytes(target.draw.randrange(100, 2_000))),
        _handshakes("protocol", "slow"),
        CONNECTIONS,
    ),
    "expired-client": Attack(_expired_clients, _handshakes("expired"), CLIENTS),
    "expired-back-end": Attack(_expired_backend, _handshakes("expired"), 1),
}


def beside(show: Record, name: str, seed: int) -> Row:
    """Offers normal calls to a fresh Tidegate, and runs the attack meanwhile."""
    attack = ATTACKS[name]
    with Stage() as stage:
        authority = Authority(stage.directory)
        client, server = authority.expired("client"), authority.expired("server")
        with tls_server(server) as expired_port:
            row = _measure(show, stage, name, attack, seed, authority, client, expired_port)
        show.keep(stage.directory / "tidegate.log", prefix=f"{name}-{seed}-")
    return row


def _measure(
    show: Record,
    stage: Stage,
    name: str,
    attack: Attack,
    seed: int,
    authority: Authority,
    client: Certificate,
    expired_port: int,
) -> Row:
    ports = {listener: free_port() for listener in ("tcp", "tls", "mutual")}
    own = Certificate.make(stage.directory)
    tables = "".join(access.listener("tcp" if kind == "tcp" else "tls", port, own) for kind, port in ports.items())
    # The last listener is the one for clients with certificates.
    tables += f'client_ca = "{authority.file}"\n{LIMITS}'
    tables += f'\n[[pool]]\nname = "theirs"\ntransport = "tls"\n[pool.tls]\nca = "{authority.file}"\n'
    tables += f'[[pool.backend]]\nuri = "sip:{LOCALHOST}:{expired_port}"\n'
    tables += f'[[route]]\nfrom = "{HOST}/32"\nto = "theirs"\n[[route]]\nto = "app"\n'
    callees = [tidegate.callee(stage, f"callee-{number}") for number in range(2)]
    edge = tidegate.start(stage, [callee.port for callee in callees], mode="transaction", tables=tables)
    memory = edge.process.resident_bytes()
    watch = Watch(edge, pool="app")
    # Closed connections of an earlier run keep ports of its address for a minute, so each run has another address.
    host = f"127.{1 + seed % 200}.{os.getpid() % 250}.{1 + list(ATTACKS).index(name)}"
    callers = {
        transport: tidegate.caller_for(
            stage,
            edge.address if transport == "udp" else f"{LOCALHOST}:{ports['tcp']}",
            rate_cps=rate_cps,
            seconds=OFFERED_S,
            hold=HOLD_S,
            seed=seed,
            host=host,
            name=f"uac-{transport}",
            options=[] if transport == "udp" else ["--transport", "tcp", "--connections", "each"],
        )
        for transport, rate_cps in RATES_CPS.items()
    }
    begun = time.monotonic()
    cores = Cores(*(caller.process for caller in callers.values()))
    time.sleep(ATTACK_AFTER_S)
    before = edge.metrics()
    outcome = attack.run(Target(edge, ports, client, random.Random(seed), seed))
    took_s = time.monotonic() - begun - ATTACK_AFTER_S
    until = time.monotonic() + COUNTED_S
    while (counted := attack.counted(edge.metrics()) - attack.counted(before)) < outcome.made:
        if time.monotonic() > until:
            break
        time.sleep(0.1)
    for connection in outcome.left or []:
        connection.close()
    callers["tcp"].process.wait(max(0.0, OFFERED_S - (time.monotonic() - begun)))
    used = sum(cores.used())
    for caller in callers.values():
        caller.end(AFTER_S)
    watch.close()
    metrics = edge.metrics()
    show.text(f"{name}-{seed}.metrics", metrics.text)
    if attack.counted is _accepted:
        # The connections of the normal calls are counted too.
        counted = _accepted(metrics) - callers["tcp"].connections()["opened"]
    row: Row = {"attack": name, "seed": seed, "made": outcome.made, "counted": counted, "failed": outcome.failed}
    for transport, caller in callers.items():
        stats = caller.stats()
        row[f"{transport}_calls"] = stats["offered"]
        row[f"{transport}_lost"] = stats["offered"] - stats["completed"]
        row[f"{transport}_late"] = stats["offered"] - stats["measured"]["set_up_in_time"]
        row[f"{transport}_p99_ms"] = stats["measured"]["set_up_delay"]["p99_us"] / 1000
    return row | {
        "closed_memory": metrics.total("connections_closed", cause="memory"),
        "excluded": watch.excluded_max,
        "grown_mib": round((watch.resident_max - memory) / 2**20, 1),
        "attack_s": round(took_s, 1),
        "generator_cores": round(used, 3),
        "generator_drops": sum(caller.process.drops() for caller in callers.values()),
        "told": outcome.told,
    }


def judge(record: Record, row: Row, alone: Row) -> None:
    name = row["attack"]
    for transport in RATES_CPS:
        calls, lost, late = (row[f"{transport}_{key}"] for key in ("calls", "lost", "late"))
        told = f"{name}: of {calls:,} calls over {transport.upper()} {lost} were lost and {late} not set up in time"
        record.expect(calls > 0 and lost == late == 0, told)
    record.expect(row["excluded"] == 0, f"{name}: {row['excluded']} back ends that answer were excluded")
    if name == "none":
        return
    made, counted = row["made"], row["counted"]
    if "storm" in name:
        least = 0.9 * STORM_PER_S * STORM_S
        record.expect(made >= least, f"  {made:,} connections were made, at least {least:,.0f} are needed")
    record.expect(counted >= made, f"  of {made:,} attacks {counted:,} are counted")
    if name == "incomplete-bodies":
        full = row["closed_memory"]
        record.expect(full > 0, f"  {full} connections were closed because of `memory_max_mb`")
    record.expect(row["failed"] == 0, f"  {row['failed']} of the stranger's attempts ended without a clear error")
    grown = row["grown_mib"] - alone["grown_mib"]
    allowed = MEMORY_MAX_MB + ATTACKS[name].open_max * EACH_KIB / 1024 + NOISE_MIB
    record.expect(grown <= allowed, f"  memory grew by {grown:.1f} MiB more than without an attack, of {allowed:.0f}")


class Show(Demonstration):
    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--only", choices=list(ATTACKS)[1:], action="append", help="run only this attack (may be repeated)"
        )

    def run(self) -> Results:
        rows = []
        for seed in self.rounds:
            alone: Row = {}
            for name in ["none", *(self.options.only or list(ATTACKS)[1:])]:
                row = beside(self, name, seed)
                alone = alone or row
                if row["told"]:
                    print(f"        {name}: {row['told']}")
                judge(self, row, alone)
                rows.append(row)
        self.rows("runs", rows)
        keys = ["made", "counted", "udp_lost", "udp_late", "tcp_lost", "tcp_late", "udp_p99_ms", "tcp_p99_ms"]
        keys += ["excluded", "grown_mib"]
        print(f"  {'attack':<18}" + "".join(f"{key:>11}" for key in keys))
        for row in rows:
            print(f"  {row['attack']:<18}" + "".join(f"{row[key]:>11}" for key in keys))
        if len(self.rounds) > 1:
            calls = {row["udp_calls"] for row in rows}
            self.expect(len(calls) > 1, "the seeds gave different calls")
        cores = max(row["generator_cores"] for row in rows)
        drops = sum(row["generator_drops"] for row in rows)
        self.expect(drops == 0, f"the callers lost {drops} datagrams and used {cores} of a core")
        return {"runs": rows}
