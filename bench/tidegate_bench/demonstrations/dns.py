"""The DNS stops responding: 500 calls/s to known names continue, and other requests get a response in time

SIPp makes 500 calls/s to a domain whose SRV record is on a real DNS server (dnsmasq). Records are valid for 5 s. 20
times a second a request goes to another unknown name. The DNS server first answers. Then it is stopped (SIGSTOP),
continued, and killed. SIPp counts the failed calls to the known domain. A request to an unknown name gets a response
in time if its final response arrives within 11 s.
"""

import os
import re
import signal
import socket
import threading
import time
from itertools import accumulate
from typing import Any

from tidegate_bench import message, sipp, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Cores, Stage
from tidegate_bench.record import Record, quantile
from tidegate_bench.sockets import LOCALHOST, free_port

RATE_CPS = 500
UNKNOWN_CPS = 20
PHASES = (("answers", 8.0), ("silent", 12.0), ("again", 8.0), ("gone", 12.0))
SIGNALS = {"silent": signal.SIGSTOP, "again": signal.SIGCONT, "gone": signal.SIGKILL}
ENDS = dict(zip((phase for phase, _ in PHASES), accumulate(length for _, length in PHASES), strict=True))
DURATION_S = max(ENDS.values())
TTL_S = 5
# A request is parked for at most 10 s.
IN_TIME_S = 11.0
PARKED_MAX = 1024


class Unknown(threading.Thread):
    """Sends requests to unknown names, and records the times and statuses of the responses."""

    def __init__(self, proxy: str, seed: int) -> None:
        super().__init__(daemon=True)
        host, port = proxy.split(":")
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((LOCALHOST, 0))
        self._socket.settimeout(0.01)
        self._proxy, self._seed = (host, int(port)), seed
        self.sent: dict[int, float] = {}
        self.finals: dict[int, tuple[float, int]] = {}
        self.until = float("inf")

    def run(self) -> None:
        begun, number = time.monotonic(), 0
        while time.monotonic() < self.until + IN_TIME_S + 1:
            now = time.monotonic()
            if now < self.until and now >= begun + number / UNKNOWN_CPS:
                self.sent[number] = now
                self._send(number, "INVITE", "")
                number += 1
            try:
                text = self._socket.recv(65536).decode(errors="replace")
            except TimeoutError:
                continue
            found = re.search(r"^Call-ID: u(\d+)-", text, re.M)
            status = int(text[8:11]) if text.startswith("SIP/2.0 ") else 0
            if found and status >= 200 and " INVITE" in text:
                answered = int(found[1])
                self.finals.setdefault(answered, (time.monotonic(), status))
                tag = re.search(r"^To: [^\r]*(;tag=[^\r;]*)", text, re.M)
                self._send(answered, "ACK", tag[1] if tag else "")

    def _send(self, number: int, method: str, tag: str) -> None:
        own = "{}:{}".format(*self._socket.getsockname())
        uri, call = f"sip:x@n{number}-{self._seed}.unknown.test", f"u{number}-{self._seed}"
        written = message.request(
            method, uri, own, branch=f"z9hG4bKu{number}", from_tag="a", call=call, to=f"<{uri}>{tag}"
        )
        self._socket.sendto(written, self._proxy)


def dnsmasq(callee_port: int, port: int) -> list[str]:
    """Returns the command of a DNS server that knows one domain."""
    os.environ["PATH"] += ":/usr/sbin"
    return [
        *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file=", "--user=", "--no-resolv"),
        *("--no-poll", "--no-hosts", "--bind-interfaces", "--local=/test/", f"--local-ttl={TTL_S}"),
        *(f"--listen-address={LOCALHOST}", f"--port={port}", f"--host-record=one.known.test,{LOCALHOST}"),
        f"--srv-host=_sip._udp.known.test,one.known.test,{callee_port},10,10",
    ]


def one_run(record: Record, round_: int) -> dict[str, Any]:
    print(f"run {round_}")
    with Stage() as stage:
        callee = sipp.callee(stage, "callee", "uas-record-route")
        dns_port = free_port()
        dns = stage.serve("dnsmasq", dnsmasq(callee.port, dns_port), dns_port)
        edge = tidegate.start(
            stage,
            [free_port()],
            mode="transaction",
            listen='trust = ["127.0.0.0/8"]',
            tables='[[route]]\nfrom = "trusted"\nto = "request-uri"\n'
            f'[resolver]\nservers = ["{LOCALHOST}:{dns_port}"]\n',
        )
        unknown = Unknown(edge.address, round_)
        cores = Cores(edge.process)
        caller = sipp.caller(
            stage,
            "caller",
            edge.address,
            rate_cps=RATE_CPS,
            calls=round(RATE_CPS * DURATION_S),
            scenario="uac-domain",
            traced=True,
            options=["-s", "carol", "-key", "domain", "known.test"],
        )
        begun = time.monotonic()
        unknown.start()
        parked = 0.0
        for phase, ends in ENDS.items():
            if phase in SIGNALS:
                dns.send(SIGNALS[phase])
            while time.monotonic() < begun + ends:
                time.sleep(0.2)
                parked = max(parked, edge.metrics().value("parked_requests"))
        unknown.until = time.monotonic()
        [used] = cores.used()
        caller.process.wait(40.0)
        unknown.join()
        calls, times = caller.calls(), caller.response_times()
        drops = caller.process.drops() + callee.process.drops()
        record.keep(stage.directory / "tidegate.log", stage.directory / "caller.csv", prefix=f"{round_}-")
        left = edge.metrics().value("parked_requests")

    def p99_ms(*phases: str) -> float:
        """Returns the p99 of the set-up delay of the calls that were answered in these phases."""
        ended = [next((phase for phase, ends in ENDS.items() if came < ends), "") for came, _ in times]
        delays = (delay for phase, (_, delay) in zip(ended, times, strict=True) if phase in phases)
        return round(1e3 * quantile(delays, 0.99), 2)

    waits = [unknown.finals[n][0] - sent for n, sent in unknown.sent.items() if n in unknown.finals]
    late = len(unknown.sent) - sum(wait <= IN_TIME_S for wait in waits)
    statuses = sorted({status for _, status in unknown.finals.values()})
    asked = RATE_CPS * DURATION_S
    record.expect(calls.created > 0.95 * asked, f"{calls.created} calls to the known domain were made")
    record.expect(calls.clean, f"all of them succeeded: {calls}")
    record.expect(
        not late, f"of {len(unknown.sent)} requests to unknown names {late} had no final response within {IN_TIME_S} s"
    )
    record.expect(set(statuses) <= {404, 503, 504}, f"the statuses of these responses are {statuses}")
    record.expect(
        parked <= PARKED_MAX and left == 0, f"at most {parked:.0f} requests were parked, and {left:.0f} at the end"
    )
    record.expect(drops == 0, f"SIPp lost {drops} datagrams")
    return {
        "run": round_,
        "calls": calls.created,
        "failed": calls.failed,
        "known_p99_ms": p99_ms("answers", "again"),
        "known_dead_p99_ms": p99_ms("silent", "gone"),
        "unknown": len(unknown.sent),
        "unknown_most_s": round(max(waits, default=float("inf")), 3),
        "parked_most": round(parked),
        "tidegate_cores": round(used, 3),
        "drops": drops,
    }


class Show(Demonstration):
    def run(self) -> Results:
        rows = self.rows("runs", [one_run(self, round_) for round_ in self.rounds])
        table.show_spreads(rows, {"known_p99_ms": 1, "known_dead_p99_ms": 1, "unknown_most_s": 2})
        return {"runs": rows}
