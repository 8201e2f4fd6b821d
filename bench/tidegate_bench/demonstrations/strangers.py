"""Attacks beside 20 normal calls/s: no normal call is lost, and no back end is wrongly excluded

Each attack is a scripted run on real sockets: everything that one untrusted address can send or forge. Normal calls
come from another address. A metric of Tidegate must count each attack, because a demonstration without attacks would
prove nothing. For each run the table shows the lost normal calls, the back ends that were excluded although they
answer, how far the attacker exceeded a limit, and the value of this metric.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tidegate_bench import kamailio, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.exchange import Exchange
from tidegate_bench.process import Cores, Stage
from tidegate_bench.record import Record
from tidegate_bench.stranger import HOST, Stranger, forged_icmp
from tidegate_bench.tidegate import Edge, Metrics

HONEST = "127.0.0.77"
RATE_CPS = 20
HOLD_S = 1.0
OFFERED_S = 10.0
ATTACK_AFTER_S = 2.0
# The longest time that a call of the last moment may take: its INVITE or BYE is retransmitted for 64*T1.
AFTER_S = 40.0
# Messages a second, 25 times as many as those of the normal calls.
FLOOD_RATE = 25 * 6 * RATE_CPS
FLOOD_S = 6.0
# A server of 200 calls/s. Examining a message costs a fortieth of serving it.
EMULATED = "\n[emulate]\noffer_us = 20\nserve_us = 813\nreject_us = 100\n"
FAIR = '\n[overload]\nlaw = "pi"\n[overload.sources]\nfair = true\n'
PROBED = '\n[pool.health]\nprobe = "options"\ninterval_s = 0.5\ntimeout_ms = 400\n'
# A back end whose learned rate falls below this is as good as excluded.
LEARNED_MIN_CPS = 2 * RATE_CPS


Row = dict[str, Any]
Script = Callable[["Run"], Row]
"""The function that makes an attack."""


@dataclass(frozen=True)
class Attack:
    """An attack, and the counter of Tidegate that shows that it took place. Normal calls do not increase it."""

    item: str
    script: Script
    counter: str
    """The name of the metric, without `tidegate_` and `_total`."""
    labels: Mapping[str, str] = field(default_factory=dict)

    def effect(self, metrics: Metrics) -> int:
        """Returns the value of the counter."""
        return metrics.total(self.counter, **self.labels)


@dataclass
class Run:
    """One attack beside normal calls."""

    stage: Stage
    seed: int
    attack: Attack

    def edge(self, backends: Sequence[str | int | Exchange], **options: Any) -> Edge:
        addresses = [backend.address if isinstance(backend, Exchange) else backend for backend in backends]
        return tidegate.start(self.stage, addresses, **{"mode": "transaction", **options})

    def beside(
        self,
        edge: Edge,
        attack: Callable[[Stranger], None],
        *,
        host: str = HOST,
        offered_s: float = OFFERED_S,
        hold_s: float = HOLD_S,
    ) -> Row:
        """Offers normal calls, and runs the attack meanwhile."""
        memory = edge.process.resident_bytes()
        caller = tidegate.caller_for(
            self.stage, edge.address, rate_cps=RATE_CPS, seconds=offered_s, hold=hold_s, seed=self.seed, host=HONEST
        )
        begun, cores = time.monotonic(), Cores(caller.process)
        watch = Watch(edge)
        stranger = Stranger(edge.address, self.seed, host)
        time.sleep(ATTACK_AFTER_S)
        attack(stranger)
        caller.process.wait(max(0.0, offered_s - (time.monotonic() - begun)))
        [used] = cores.used()
        caller.end(AFTER_S)
        drops = caller.process.drops()
        watch.close()
        effect = self.attack.effect(edge.metrics())
        stranger.take()
        stranger.close()
        stats = caller.stats()
        return {
            "honest": stats["begun"],
            "lost": stats["begun"] - stats["completed"],
            "lost_set_up": stats["set_up"] - stats["completed"],
            "excluded": watch.excluded_max,
            "effect": effect,
            "stranger_sent": stranger.sent,
            "sent_bytes": stranger.sent_bytes,
            "received_bytes": stranger.received_bytes,
            "grown_mib": round((watch.resident_max - memory) / 2**20, 1),
            "generator_cores": round(used, 3),
            "generator_drops": drops,
            "server_drops": edge.process.drops(),
        }


class Watch:
    """Checks every tenth of a second which back ends get hardly any or no calls, and the memory of Tidegate.

    With `labels`, such as `pool="app"`, it checks only the back ends with these labels.
    """

    def __init__(self, edge: Edge, **labels: str) -> None:
        self._labels = labels
        self.excluded_max = 0
        self.resident_max = 0
        self._edge = edge
        self._looks = 0
        self._error: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the checks. Raises an error if they have ended by themselves, or if there was no check."""
        self._over.set()
        self._thread.join()
        if self._error:
            raise RuntimeError(
                f"the watch of the back ends ended early, after {self._looks} looks: {self._error}"
            ) from self._error
        if not self._looks:
            raise RuntimeError("the back ends were never watched")

    def _watch(self) -> None:
        try:
            while not self._over.wait(0.1):
                self._look()
                self._looks += 1
        except Exception as error:
            self._error = error

    def _look(self) -> None:
        self.resident_max = max(self.resident_max, self._edge.process.resident_bytes())
        metrics = self._edge.metrics()
        down = sum(value == 0 for value in metrics.samples("backend_up", **self._labels))
        slow = sum(value < LEARNED_MIN_CPS for value in metrics.samples("backend_learned_cps", **self._labels))
        self.excluded_max = max(self.excluded_max, down, slow)


@contextmanager
def exchanges(count: int) -> Iterator[list[Exchange]]:
    """Runs back ends that answer until the end of the block."""
    opened = [Exchange() for _ in range(count)]
    yield opened
    for exchange in opened:
        exchange.close()


def _pool(backends: Sequence[str | Exchange], keys: str = "", more: str = "") -> str:
    """Returns a pool for requests of the stranger, with further `keys`, and with `more` keys for the last back end."""
    addresses = (backend.address if isinstance(backend, Exchange) else backend for backend in backends)
    each = "".join(f'[[pool.backend]]\nuri = "sip:{address}"\n' for address in addresses)
    route = f'[[route]]\nfrom = "{HOST}/32"\nto = "theirs"\n[[route]]\nto = "app"\n'
    return f'\n[[pool]]\nname = "theirs"\n{keys}{each}{more}{route}'


def _to_number(number: str, rate: float, seconds: float, body: str = "", **options: Any) -> Script:
    """Returns an attack that sends INVITEs to a number at two back ends."""

    def attack(run: Run) -> Row:
        with exchanges(2) as backends:
            return run.beside(
                run.edge(backends, **options),
                lambda stranger: stranger.flood(lambda: stranger.request("INVITE", number, body=body), rate, seconds),
            )

    return attack


def silent_number(run: Run) -> Row:
    """Sends INVITEs that idle back ends never answer."""
    with exchanges(4) as backends:
        return run.beside(
            run.edge(backends[:2], tables=_pool(backends[2:])),
            lambda stranger: stranger.flood(lambda: stranger.request("INVITE", "silent"), 2, 6.0),
        )


def dropped_by_kamailio(run: Run) -> Row:
    """Sends INVITEs that an idle Kamailio would drop silently, because of the text below their first Via.

    Tidegate must reject them, because a back end that does not respond seems to be down.
    """
    broken = ["SIP/2.0/UDP", "SIP/3.0/UDP 192.0.2.1;branch=z9hG4bKx", ", SIP/2.0/UDP 192.0.2.1"]

    def attack(stranger: Stranger) -> None:
        for via in 4 * broken:
            request = stranger.request("INVITE", "service")
            stranger.send(request.replace(b"\r\nFrom:", f"\r\nVia: {via}\r\nFrom:".encode(), 1))
            time.sleep(0.4)

    with exchanges(1) as [exchange]:
        kamailios = [kamailio.run(run.stage, exchange.port).address for _ in range(2)]
        return run.beside(run.edge([exchange], tables=_pool(kamailios)), attack)


def icmp(run: Run) -> Row:
    """Sends forged ICMP messages that quote the known addresses of back ends, which answer probes."""
    with exchanges(2) as backends:
        edge = run.edge(backends, tables=PROBED)
        addresses = [backend.address for backend in backends]
        return run.beside(edge, lambda _: forged_icmp(edge.address, addresses, 50))


# The limit of `copies`: requests of one source in a second, and at once.
LIMIT_CPS, LIMIT_BURST = 2, 2


def copies(run: Run) -> Row:
    """Sends 500 requests with the Call-ID of one admitted request, but with other tags, branches or CSeq numbers."""
    limit = f'\n[[overload.limit]]\nfrom = "{HOST}/32"\nrate_cps = {LIMIT_CPS}\nburst = {LIMIT_BURST}\n'
    took_s = 0.0

    def attack(stranger: Stranger) -> None:
        nonlocal took_s
        begun = time.monotonic()
        call, tag = stranger.token(), stranger.token()
        stranger.send(stranger.request("INVITE", "nobody", call=call, from_tag=tag, branch="once"))
        stranger.wait(404, 1.0)
        for number in range(125):
            for forged in (
                {"to_tag": stranger.token(), "from_tag": tag, "cseq": number + 2},
                {"branch": "once", "from_tag": stranger.token()},
                {"from_tag": tag, "cseq": number + 200},
                {"branch": "once", "from_tag": tag},
            ):
                to = f"other{number}" if len(forged) == 2 and "branch" in forged else "service"
                stranger.send(stranger.request("INVITE", to, call=call, **forged))
                time.sleep(0.01)
        took_s = time.monotonic() - begun

    with exchanges(2) as backends:
        row = run.beside(run.edge(backends, tables=limit), attack, offered_s=14.0)
    got = sum(backend.seen.requests["stranger"] for backend in backends)
    # One more for the bucket's rounding, and one that was routed before it was answered.
    return row | {"reached": got, "reached_max": int(LIMIT_BURST + LIMIT_CPS * took_s + 2)}


def forged_bye(run: Run) -> Row:
    """Makes more calls than `calls_max = 5` allows. A BYE with a wrong To-tag pretends that each has ended."""

    def attack(stranger: Stranger) -> None:
        for _ in range(60):
            dialog: dict[str, Any] = {"call": stranger.token(), "from_tag": stranger.token()}
            stranger.send(stranger.request("INVITE", "service", **dialog))
            answer = stranger.wait(200, 0.2)
            if answer is not None:
                more, to_tag = _route_of(answer), stranger.token()
                stranger.send(stranger.request("BYE", "service", more=more, to_tag=to_tag, cseq=2, **dialog))
                stranger.wait(481, 0.2)

    with exchanges(3) as backends:
        few = backends.pop()
        edge = run.edge(backends, tables=_pool([few], more="calls_max = 5\n"))
        row = run.beside(edge, attack, offered_s=14.0)
        few.close()
    return row | {"reached": few.seen.live_max["stranger"], "reached_max": 5}


def _route_of(answer: bytes) -> str:
    """Returns the Route of a caller's next request: the Record-Routes in reverse (RFC 3261 §12.1.2)."""
    lines = answer.decode().split("\r\n")
    recorded = [line.partition(": ")[2] for line in lines if line.startswith("Record-Route:")]
    return "".join(f"Route: {value}\r\n" for value in reversed(recorded))


def _flood(message: Callable[[Stranger], bytes]) -> Script:
    def attack(run: Run) -> Row:
        callees = [tidegate.callee(run.stage, f"callee-{i}") for i in range(2)]
        edge = run.edge([callee.port for callee in callees], tables=FAIR + EMULATED)
        return run.beside(edge, lambda stranger: stranger.flood(lambda: message(stranger), FLOOD_RATE, FLOOD_S))

    return attack


def _stray_response(stranger: Stranger) -> bytes:
    vias = (f"Via: SIP/2.0/UDP {at};branch=z9hG4bK{stranger.token()}\r\n" for at in (stranger.edge, stranger.here))
    rest = stranger.request("INVITE", "service", to_tag=stranger.token()).partition(b"From:")[2]
    return f"SIP/2.0 200 OK\r\n{''.join(vias)}From:".encode() + rest


def forged_trunk(run: Run) -> Row:
    """Sends INVITEs with the forged address of a trunk that has open calls, beyond a limit that bans it."""
    limit = (
        f'\n[[overload.limit]]\nfrom = "{HONEST}/32"\nrate_cps = {4 * RATE_CPS}\n'
        f'burst = {4 * RATE_CPS}\nthen = "ban"\nban_s = 60\n'
    )

    def attack(stranger: Stranger) -> None:
        time.sleep(3.0)
        for _ in range(20 * RATE_CPS):
            stranger.send(stranger.request("INVITE", "nobody"))

    with exchanges(2) as backends:
        row = run.beside(run.edge(backends, tables=limit), attack, host=HONEST, hold_s=4.0, offered_s=8.0)
    # A ban applies to new calls only. An open call must end as usual.
    return row | {"lost": row["lost_set_up"]}


# Bytes of responses for each byte of the requests: see "Responses to forged sources" in docs/reference/calls.md.
AMPLIFICATION_MAX = 12.0


def amplification(run: Run) -> Row:
    """Sends small INVITEs to a fork of eight back ends that ring with SDP and reject.

    Measures the bytes that a forged source would get.
    """

    def attack(stranger: Stranger) -> None:
        for _ in range(5):
            stranger.send(stranger.request("INVITE", "rejecting"))
            time.sleep(0.5)
        # Timer G repeats the final response for 64*T1 (RFC 3261 §17.2.1).
        until = time.monotonic() + 36
        while time.monotonic() < until:
            stranger.take()
            time.sleep(0.05)

    with exchanges(10) as backends:
        row = run.beside(run.edge(backends[:2], tables=_pool(backends[2:], 'policy = "fork"\n')), attack)
    return row | {"reached": round(row["received_bytes"] / row["sent_bytes"], 1), "reached_max": AMPLIFICATION_MAX}


def _unverified(message: Callable[[Stranger], bytes]) -> Attack:
    """Returns a flood of messages that claim to belong to a call or a transaction."""
    return Attack("B7", _flood(message), "messages_unverified")


ATTACKS: dict[str, Attack] = {
    # INVITEs to a number that answers `503 Retry-After: 3600`.
    "overloaded-number": Attack("A1", _to_number("overloaded", 5, 5.0), "backend_rejections"),
    # The same attack with learned rates: 100 INVITEs to that number.
    "learned-rate": Attack(
        "A2", _to_number("overloaded", 20, 5.0, tables='\n[pool.limit]\nlearn = "rejections"\n'), "backend_rejections"
    ),
    "silent-number": Attack("A3", silent_number, "backend_failures"),
    "dropped-by-kamailio": Attack("A3", dropped_by_kamailio, "replies", {"status": "400", "reason": "malformed"}),
    "forged-icmp": Attack("A4", icmp, "icmp_reports"),
    "copies": Attack("B5", copies, "work_rejected", {"reason": "source_limit"}),
    # The responses of the back end to the forged BYEs.
    "forged-bye": Attack("B6", forged_bye, "backend_responses", {"pool": "theirs", "method": "other", "status": "4xx"}),
    "flood-bye": _unverified(lambda s: s.request("BYE", "service", to_tag=s.token())),
    "flood-cancel": _unverified(lambda s: s.request("CANCEL", "service")),
    "flood-ack": _unverified(lambda s: s.request("ACK", "service", to_tag=s.token())),
    "flood-in-dialog": _unverified(lambda s: s.request("INFO", "service", to_tag=s.token())),
    "flood-response": _unverified(_stray_response),
    # 1,500 INVITEs of 60 KB to a number that rings forever, with room for 2,000 transactions.
    "large-requests": Attack(
        "B8",
        _to_number("ringing", 250, 6.0, 60_000 * "x", server="transactions_max = 2000"),
        "table_rejections",
        {"table": "transactions"},
    ),
    "forged-trunk": Attack("B9", forged_trunk, "messages_dropped", {"reason": "banned"}),
    "amplification": Attack("B10", amplification, "responses_withheld"),
}


def judge(record: Record, row: Row) -> None:
    name = row["attack"]
    record.expect(
        row["lost"] == 0 and row["honest"] > 0, f"{name}: of {row['honest']} normal calls {row['lost']} were lost"
    )
    record.expect(row["excluded"] == 0, f"{name}: {row['excluded']} back ends that answer were excluded")
    record.expect(row["effect"] > 0, f"{name}: {ATTACKS[name].counter}_total counts the attack: {row['effect']}")
    if row["reached_max"] is not None:
        record.expect(
            row["reached"] <= row["reached_max"],
            f"{name}: the stranger reached {row['reached']}, allowed are {row['reached_max']}",
        )


class Show(Demonstration):
    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", choices=ATTACKS, action="append", help="run only this attack (may be repeated)")

    def run(self) -> Results:
        rows = []
        for name in self.options.only or ATTACKS:
            attack = ATTACKS[name]
            for seed in self.rounds:
                with Stage() as stage:
                    row: Row = {"attack": name, "item": attack.item, "seed": seed, "reached": None, "reached_max": None}
                    row |= attack.script(Run(stage, seed, attack))
                    self.keep(stage.directory / "tidegate.log", prefix=f"{name}-{seed}-")
                judge(self, row)
                rows.append(row)
        self.rows("runs", rows)
        keys = ("honest", "lost", "excluded", "reached", "effect")
        print(f"  {'attack':<22}" + "".join(f"{key:>18}" for key in keys))
        for name in dict.fromkeys(row["attack"] for row in rows):
            mine = [row for row in rows if row["attack"] == name]
            cells = ("/".join("-" if row[key] is None else str(row[key]) for row in mine) for key in keys)
            print(f"  {name:<22}" + "".join(f"{cell:>18}" for cell in cells))
            if len(self.rounds) > 1:
                differing = {row["honest"] for row in mine} | {row["stranger_sent"] for row in mine}
                self.expect(len(differing) > 1, f"{name}: the seeds gave different runs")
        cores = max(row["generator_cores"] for row in rows)
        drops = sum(row["generator_drops"] for row in rows)
        self.expect(drops == 0, f"the generator lost {drops} datagrams and used {cores} of a core")
        return {"runs": rows}
