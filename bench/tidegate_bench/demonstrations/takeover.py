"""Several Tidegates share one address. One is killed, one joins, and one is drained: no call is lost

Two processes share an address and a key file, and nothing else. Each call of SIPp comes from its own port, so the
kernel divides the calls between the two. While all calls are up, one process is killed (kill -9). The re-INVITEs and
BYEs of its calls arrive at the other process. Then, under load, a third process joins and the first is asked to stop.
In a last run the two processes have different keys, and the requests of the killed one's calls are rejected. This
shows that the key made the takeover possible.
"""

import signal
import time
from dataclasses import asdict
from typing import Any

from tidegate_bench import sipp, table, tidegate
from tidegate_bench.answerer import Answerer
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST, free_port

# An address that other programs do not use. Otherwise their retransmissions could arrive at the caller.
CALLER = "127.0.77.1"
CALLS = 800
RATE_CPS = 200
# Time from the set-up of a call to its re-INVITE. It is longer than the CALLS / RATE_CPS seconds of new calls.
HOLD_MS = 8000
# Time from the last INVITE to its ACK.
SET_UP_S = 0.5

MOVING_CALLS = 1500
MOVING_RATE_CPS = 100
MOVING_HOLD_MS = 500
JOIN_AFTER_S = 4.0
LEAVE_AFTER_S = 8.0

CONTROL_CALLS = 100


class Site:
    """Two back ends, and an address for several Tidegates."""

    def __init__(self, stage: Stage, own_keys: bool = False) -> None:
        self.stage = stage
        self.own_keys = own_keys
        self.backends = [Answerer() for _ in range(2)]
        self.address = f"{LOCALHOST}:{free_port()}"
        self.edges: dict[str, tidegate.Edge] = {}
        for name in ("a", "b"):
            self.open(name)

    def open(self, name: str) -> None:
        """Starts one more Tidegate at the address."""
        listen = f'[[listen]]\ntransport = "udp"\naddress = "{self.address}"\nshared = "processes"\n'
        ports = [backend.port for backend in self.backends]
        state = name if self.own_keys else "shared"
        self.edges[name] = tidegate.start(self.stage, ports, mode="transaction", listen=listen, name=name, state=state)

    def call(self, calls: int, rate_cps: int, hold_ms: int) -> sipp.Sipp:
        options: dict[str, Any] = {"rate_cps": rate_cps, "calls": calls, "hold_ms": hold_ms}
        options |= {"scenario": "uac-reinvite", "scattered": True, "host": CALLER}
        return sipp.caller(self.stage, "caller", self.address, **options)

    def carried(self, *names: str) -> dict[str, int]:
        """Returns the number of calls that each of these Tidegates has sent to a back end."""
        return {name: self.edges[name].metrics().total("backend_assigned") for name in names or self.edges}

    def wait_for(self, calls: int) -> dict[str, int]:
        """Waits until this number of calls is open, or until a time limit. Returns the calls of each Tidegate."""
        begun = time.monotonic()
        while sum((through := self.carried()).values()) < calls and time.monotonic() - begun <= HOLD_MS / 1000:
            time.sleep(0.1)
        time.sleep(SET_UP_S)
        return through

    def expect_served(self, record: Record, run: str, caller: sipp.Sipp, calls: int) -> sipp.Calls:
        """Expects that every call was completed, at the caller and at the back ends. Keeps the logs of `run`."""
        ended, asked = caller.process.wait(60), caller.calls()
        record.expect(ended and asked.created == calls and asked.clean, f"the caller: {asked}")
        total = 0
        for name, backend in zip(("first", "second"), self.backends, strict=True):
            seen = backend.close()
            begun, whole = len(seen.invites), seen.whole(invites=2)
            total += begun
            record.expect(
                0 < begun == whole and seen.stray == 0,
                f"the {name} back end: {begun} calls, {whole} with re-INVITE and BYE, {seen.stray} requests astray",
            )
        record.expect(total == calls, f"{total} calls began at the back ends: none twice")
        for file in self.stage.directory.iterdir():
            if file.suffix in (".log", ".errors"):
                (record.directory / f"{run}-{file.name}").write_bytes(file.read_bytes())
        return asked


def one_kill(record: Record, round_: int) -> dict[str, Any]:
    print(f"round {round_}: one of two processes is killed with {CALLS:,} calls up")
    with Stage() as stage:
        site = Site(stage)
        begun = time.monotonic()
        caller = site.call(CALLS, RATE_CPS, HOLD_MS)
        through = site.wait_for(CALLS)
        site.edges["a"].process.send(signal.SIGKILL)
        away = time.monotonic() - begun
        record.expect(
            sum(through.values()) == CALLS and min(through.values()) > CALLS // 4,
            f"calls are open through both processes: {through['a']} and {through['b']}",
        )
        record.expect(away < HOLD_MS / 1000, f"one process is killed after {away:.1f} s, before any re-INVITE")
        asked = site.expect_served(record, f"kill-{round_}", caller, CALLS)
        byes = site.edges["b"].metrics().total("messages_received", class_="bye")
        record.expect(byes >= CALLS, f"{byes} BYEs arrived at the other process")
        row = {"round": round_, "through_killed": through["a"], "through_other": through["b"]}
        return row | {"byes_at_other": byes, **asdict(asked)}


def one_move(record: Record, round_: int) -> dict[str, Any]:
    print(f"round {round_}: one process joins and one leaves at {MOVING_RATE_CPS} calls/s")
    with Stage() as stage:
        site = Site(stage)
        begun = time.monotonic()
        caller = site.call(MOVING_CALLS, MOVING_RATE_CPS, MOVING_HOLD_MS)
        time.sleep(JOIN_AFTER_S)
        site.open("c")
        time.sleep(LEAVE_AFTER_S - (time.monotonic() - begun))
        asked_to_end, first = time.monotonic(), site.edges["a"].process
        # The last scrape of the process, because it reports nothing after its end.
        carried = site.carried("a")
        first.send(signal.SIGTERM)
        drained = first.wait(40)
        took = time.monotonic() - asked_to_end
        record.expect(
            drained and first.exit_status == 0,
            f"the first ended by itself after {took:.1f} s, with status {first.exit_status}",
        )
        asked = site.expect_served(record, f"move-{round_}", caller, MOVING_CALLS)
        carried |= site.carried("b", "c")
        record.expect(min(carried.values()) > MOVING_CALLS // 10, f"new calls through each: {carried}")
        through = {f"through_{name}": count for name, count in carried.items()}
        return {"round": round_, **through, "drained_s": round(took, 2), **asdict(asked)}


def control(record: Record) -> None:
    print(f"control: {CONTROL_CALLS} calls, each process with keys of its own")
    with Stage() as stage:
        site = Site(stage, own_keys=True)
        caller = site.call(CONTROL_CALLS, RATE_CPS, HOLD_MS)
        through = site.wait_for(CONTROL_CALLS)["a"]
        site.edges["a"].process.send(signal.SIGKILL)
        caller.process.wait(90)
        asked = caller.calls()
        record.expect(
            through > 0 and asked.failed == through, f"the {through} calls of the killed process are lost: {asked}"
        )


class Show(Demonstration):
    def run(self) -> Results:
        kills = self.rows("kills", [one_kill(self, round_) for round_ in self.rounds])
        moves = self.rows("moves", [one_move(self, round_) for round_ in self.rounds])
        control(self)
        for what, rows in (("killed", kills), ("joined and drained", moves)):
            table.show_spreads(rows, {"failed": 0, "retransmissions": 0}, what)
        return {"kills": kills, "moves": moves}
