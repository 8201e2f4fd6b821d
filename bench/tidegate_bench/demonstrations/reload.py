"""10,000 back ends are reloaded under calls and OPTIONS, and no packet is lost

One server answers at the addresses of all back ends. These are in one pool, or in a hundred pools. Every two seconds
the configuration changes to another one, drawn from a seed: half of the back ends are removed, as many are added, and
their order changes. At the end two reloads are requested at the same time. Tidegate must apply each of them, and its
metrics must show the back ends of the last configuration. Meanwhile calls continue, each held for some seconds at a
back end that may have been removed before its BYE. OPTIONS requests to Tidegate itself measure how long a packet waits.
Every retransmission of a call's messages is counted. `--profile` shows by perf where the time is spent.
"""

import argparse
import random
import re
import socket
import struct
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tidegate_bench import message, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import NS, Cores, Process, Stage
from tidegate_bench.record import Record, quantile
from tidegate_bench.sockets import LOCALHOST

BACKENDS = 10_000
LAYOUTS = {"one pool": 1, "100 pools": 100}
RELOADS = 5
EVERY_S = 2.0
BEFORE_S = 4.0
OPTIONS_CPS = 500
CALLS_CPS = 100
HOLD_S = 3
# Half of T1 (RFC 3261 §17), the time after which a sender retransmits a request.
WORST_MS = 250.0
# Linux stamps the arrival of a datagram, so delays of Python do not matter.
_SO_TIMESTAMPNS = 35


class Options(threading.Thread):
    """Sends OPTIONS at even intervals, each once, and records the delay of each answer."""

    def __init__(self, proxy: str) -> None:
        super().__init__(daemon=True)
        host, port = proxy.split(":")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((LOCALHOST, 0))
        self._socket.connect((host, int(port)))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._proxy = proxy
        self._own = "{}:{}".format(*self._socket.getsockname())
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._ended = threading.Event()
        self.sent_ns: list[int] = []
        self.took_ns: dict[int, int] = {}
        self.others = 0

    def run(self) -> None:
        self._reader.start()
        begun = time.monotonic()
        while not self._ended.is_set():
            number = len(self.sent_ns)
            time.sleep(max(0.0, begun + number / OPTIONS_CPS - time.monotonic()))
            message = self._message(number)
            self.sent_ns.append(time.time_ns())
            self._socket.send(message)

    def finish(self) -> None:
        """Stops sending, and waits for the last answers."""
        self._ended.set()
        self.join()
        time.sleep(1.0)

    def _read(self) -> None:
        while True:
            text, ancillary, _, _ = self._socket.recvmsg(4096, 256)
            seconds, ns = struct.unpack("qq", ancillary[0][2])
            if not text.startswith(b"SIP/2.0 200 "):
                self.others += 1
                continue
            at = text.index(b"\r\nCSeq: ") + 8
            number = int(text[at : text.index(b" ", at)])
            self.took_ns.setdefault(number, seconds * NS + ns - self.sent_ns[number])

    def _message(self, number: int) -> bytes:
        call, branch = f"o{number}@{self._own}", f"z9hG4bKo{number}"
        return message.request(
            "OPTIONS", f"sip:{self._proxy}", self._own, branch=branch, from_tag="a", call=call, cseq=number
        )


Backends = set[tuple[str, str]]
"""Back ends: the name of the pool, and the address."""


class Configurations:
    """Configurations of 10,000 back ends. Half of them were in the previous configuration too."""

    def __init__(self, head: str, port: int, pools: int, seed: int) -> None:
        self._head, self._port, self._pools = head, port, pools
        self._draws = random.Random(seed)
        self._used = self._draws.sample(range(2 * BACKENDS), BACKENDS)

    def next(self) -> str:
        others = sorted(set(range(2 * BACKENDS)) - set(self._used))
        half = BACKENDS // 2
        self._used = self._draws.sample(self._used, half) + self._draws.sample(others, half)
        self._draws.shuffle(self._used)
        return self.text()

    def text(self) -> str:
        lines = [self._head]
        for pool in range(self._pools):
            lines.append(f'[[pool]]\nname = "app-{pool}"\npolicy = "p2c"\nmode = "transaction"\n')
            lines.append('[pool.health]\nprobe = "options"\ninterval_s = 30\n')
            lines += (f'[[pool.backend]]\nuri = "sip:{address}"\n' for address in self._addresses(pool))
        lines.append('[[route]]\nto = "app-0"\n')
        return "".join(lines)

    def backends(self) -> Backends:
        """Returns the back ends of the present configuration."""
        return {(f"app-{pool}", address) for pool in range(self._pools) for address in self._addresses(pool)}

    def _addresses(self, pool: int) -> list[str]:
        numbers = self._used[pool :: self._pools]
        return [f"127.{10 + n // 62500}.{n // 250 % 250}.{n % 250 + 1}:{self._port}" for n in numbers]


def configured(metrics: tidegate.Metrics) -> Backends:
    """Returns the back ends that Tidegate shows, without those that it has removed."""
    shown = r'^tidegate_backend_state\{pool="([^"]*)",backend="([^"]*)",state="removed"\} 0$'
    return set(re.findall(shown, metrics.text, re.MULTILINE))


def reload(edge: tidegate.Edge) -> float:
    """Requests a reload. Returns the ms until the answer, which comes when all shards have applied it.

    Ends the script if they have not applied it after 2 s.
    """
    begun = time.monotonic()
    url = f"http://{LOCALHOST}:{edge.admin_port}/reload"
    with urllib.request.urlopen(urllib.request.Request(url, method="POST"), timeout=30) as answer:
        answer.read()
    if answer.status != 200:
        sys.exit(f"Tidegate has not applied a reload in time: HTTP status {answer.status}")
    return 1e3 * (time.monotonic() - begun)


class Alive(threading.Thread):
    """Requests /healthz continually, to measure how long the admin interface makes requests wait."""

    def __init__(self, edge: tidegate.Edge) -> None:
        super().__init__(daemon=True)
        self._url = f"http://{LOCALHOST}:{edge.admin_port}/healthz"
        self._ended = threading.Event()
        self.worst_ms = 0.0

    def run(self) -> None:
        while not self._ended.is_set():
            begun = time.monotonic()
            urllib.request.urlopen(self._url, timeout=30).read()
            self.worst_ms = max(self.worst_ms, 1e3 * (time.monotonic() - begun))
            time.sleep(0.02)

    def finish(self) -> None:
        self._ended.set()
        self.join()


def one_run(record: Record, layout: str, seed: int, reloads: int, profiled: bool) -> dict[str, Any]:
    print(f"{layout}, seed {seed}")
    name = f"{LAYOUTS[layout]}-{seed}"
    duration = BEFORE_S + (reloads + 2) * EVERY_S
    with Stage() as stage:
        callee = tidegate.callee(stage, "uas", options=["--all-addresses"])
        edge = tidegate.configure(stage, [], mode="transaction")
        text = edge.configuration.read_text()
        configurations = Configurations(text[: text.index("[[pool]]")], callee.port, LAYOUTS[layout], seed)
        edge.configuration.write_text(configurations.text())
        server = tidegate.run(stage, edge)
        caller = tidegate.caller_for(
            stage, edge.address, rate_cps=CALLS_CPS, seconds=duration, hold=f"exp:{HOLD_S}", seed=seed
        )
        cores = Cores(server, caller.process, callee.process)
        options, alive = Options(edge.address), Alive(edge)
        begun = time.monotonic()
        options.start()
        time.sleep(BEFORE_S / 2)
        calm_ns = (shard(server)[0], time.monotonic_ns())
        time.sleep(BEFORE_S / 2)
        alive.start()
        if profiled:
            data = record.directory / f"{name}.perf"
            sample = ["perf", "record", "-F", "2000", "-p", str(server.pid), "-o", str(data), "--", "sleep", "8"]
            perf = stage.start("perf", sample)
        quiet, took, shard_ms = len(options.sent_ns), [], []
        used, waited = shard(server)
        calm_cores = (used - calm_ns[0]) / (time.monotonic_ns() - calm_ns[1])
        for _ in range(reloads):
            edge.configuration.write_text(configurations.next())
            used, at = shard(server)[0], time.monotonic_ns()
            took.append(reload(edge))
            used, elapsed = shard(server)[0] - used, time.monotonic_ns() - at
            shard_ms.append((used - calm_cores * elapsed) / 1e6)
            time.sleep(max(0.0, EVERY_S - took[-1] / 1e3))
        waited = shard(server)[1] - waited
        # Two reloads at once: the shards may get both in one turn.
        edge.configuration.write_text(configurations.next())
        with ThreadPoolExecutor(2) as both:
            took += both.map(reload, [edge, edge])
        alive.finish()
        time.sleep(max(0.0, begun + duration - time.monotonic()))
        options.finish()
        cpu, drops = cores.used(), caller.process.drops()
        caller.process.wait(60)
        stats, metrics, resident = caller.stats(), edge.metrics(), server.resident_bytes()
        drops += callee.process.drops()
        server_drops = server.drops()
        again = sum(stats["repeated"].values()) + callee.finish()["repeated"]
        if profiled:
            perf.wait(20)
        record.keep(stage.directory / "tidegate.log", prefix=f"{name}-")
    took_ms = [ns / 1e6 for ns in options.took_ns.values()]
    # The processes start in the first second, so it does not count.
    calm = [ns / 1e6 for n, ns in options.took_ns.items() if OPTIONS_CPS < n < quiet - OPTIONS_CPS // 2]
    first, *_ = options.sent_ns
    sent = enumerate(options.sent_ns)
    each = [{"number": n, "sent_ns": ns - first, "took_ns": options.took_ns.get(n, "")} for n, ns in sent]
    record.rows(f"options-{name}", each)
    # The metrics of 10,000 back ends have thirty megabytes.
    whole = [line for line in metrics.text.splitlines() if "backend=" not in line]
    record.text(f"{name}.metrics", "\n".join(whole) + "\n")
    lost, worst = len(each) - len(took_ms), max(took_ms)
    wanted, shown = configurations.backends(), configured(metrics)
    record.expect(
        shown == wanted,
        f"of the {len(wanted)} back ends of the last configuration Tidegate has {len(shown & wanted)}, and "
        f"{len(shown - wanted)} others",
    )
    applied = metrics.total("commands", outcome="applied")
    record.expect(applied == reloads + 2, f"Tidegate has applied {applied} of {reloads + 2} reloads")
    record.expect(lost == 0, f"of {len(each)} OPTIONS {lost} had no answer; {options.others} answers were no 200")
    record.expect(
        stats["offered"] == stats["completed"] > 0.9 * CALLS_CPS * duration,
        f"{stats['completed']} of {stats['offered']} calls completed",
    )
    record.expect(again == 0, f"{again} messages of calls were sent again")
    record.expect(
        drops + server_drops == 0, f"{server_drops} datagrams dropped by Tidegate's sockets, {drops} by others"
    )
    record.expect(worst <= WORST_MS, f"the slowest OPTIONS took {worst:.1f} ms (before the reloads {max(calm):.1f})")
    record.expect(cpu[1] < 0.5, f"the caller used {cpu[1]:.2f} cores")
    row = {"layout": layout, "seed": seed, "reloads": len(took), "options": len(each), "options_lost": lost}
    row |= {"calls": stats["offered"], "calls_completed": stats["completed"], "repeated": again}
    row |= {"drops": drops + server_drops, "tidegate_mib": round(resident / 2**20)}
    figures = {
        "median_ms": quantile(took_ms, 0.5),
        "p99_ms": quantile(took_ms, 0.99),
        "worst_ms": worst,
        "worst_before_ms": max(calm),
        "shard_cpu_median_ms": quantile(shard_ms, 0.5),
        "shard_cpu_worst_ms": max(shard_ms),
        "shard_waited_ms": waited / 1e6,
        "reload_median_ms": quantile(took, 0.5),
        "reload_worst_ms": max(took),
        "healthz_worst_ms": alive.worst_ms,
    }
    figures |= dict(zip(("tidegate_cores", "caller_cores", "callee_cores"), cpu, strict=True))
    return row | {key: round(figure, 3) for key, figure in figures.items()}


def shard(server: Process) -> tuple[int, int]:
    """Returns the ns for which the thread of the shard has run on a core, and has waited for a core."""
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        if (task / "comm").read_text().startswith("shard"):
            used, waited, _ = (task / "schedstat").read_text().split()
            return int(used), int(waited)
    sys.exit("Tidegate has no thread with the name of a shard")


class Show(Demonstration):
    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--reloads", type=int, default=RELOADS, help="number of reloads in each run (default %(default)s)"
        )
        parser.add_argument(
            "--layout", choices=LAYOUTS, action="append", help="run only this layout of pools (may be repeated)"
        )
        parser.add_argument("--profile", action="store_true", help="also record a profile with perf")

    def run(self) -> Results:
        layouts = self.options.layout or list(LAYOUTS)
        runs = ((layout, seed) for seed in self.rounds for layout in layouts)
        rows = [one_run(self, layout, seed, self.options.reloads, self.options.profile) for layout, seed in runs]
        self.rows("runs", rows)
        for layout in layouts:
            mine = [row for row in rows if row["layout"] == layout]
            table.show_spreads(mine, {key: 2 for key in mine[0] if key.endswith("_ms")}, layout)
        return {"runs": rows}
