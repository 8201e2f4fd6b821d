"""100,000 random and damaged datagrams: other calls complete, memory stays, and nothing is relayed

Unknown senders send 4,000 datagrams a second, most of them half-broken SIP, while SIPp makes ordinary calls through
the same socket. Then the unknown senders ask to be relayed to an address that is not configured. This address must
receive nothing, and they must get a 403. The seeds are fixed and printed, so that a run can be repeated.
"""

import itertools
import random
import socket
import time
from dataclasses import asdict
from typing import Any, NamedTuple

from tidegate_bench import message, sipp, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Process, Stage
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST

DATAGRAMS = 100_000
RATE = 4000
STRANGERS = 8
# Addresses that no back end has, because a back end may send to any address.
STRANGER = "127.0.0.88"
VICTIM = "127.0.0.99"
DATAGRAM_MAX = 60_000
CALL_RATE_CPS = 100
# Memory of the tables for calls that strangers began and never ended. A leak of one buffer a datagram would be 200 MB.
GROWTH_MAX_BYTES = 32 * 1024 * 1024

METHODS = ("INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "REGISTER", "MESSAGE", "NOTIFY", "PRACK")
STATUSES = ("100 Trying", "180 Ringing", "200 OK", "302 Moved", "486 Busy", "503 Unavailable")
PIECES = (
    b"\r\n", b"\n", b"\r\n\r\n", b"\0", b":", b";", b",", b"<", b">", b'"', b"\\", b"%00", b"@",
    b"\xff\xfe", b"\xc3\x28", b" " * 300, b"Via: SIP/2.0/UDP a;branch=z9hG4bK", b";lr", b"[::1",
    b"Content-Length: -1\r\n", b"Content-Length: 99999999999999999999\r\n", b"v: x\r\n", b"i:\r\n",
    b"Max-Forwards: 0\r\n", b"Max-Forwards: 4294967296\r\n", b"CSeq: 4294967296 INVITE\r\n",
    b"Route: <sip:127.0.0.9:9;lr>\r\n", b"Record-Route: <sip:x;lr>,,<sip:\r\n", b"l: 5\r\n",
)  # fmt: skip

# The kinds of damage, with their weights.
DAMAGES = {"noise": 6, "gap": 6, "foreign": 8, "end": 2, "order": 2, "echo": 5, "flood": 0.2}


def whole_message(draw: random.Random, edge: tidegate.Edge) -> bytes:
    """Returns a whole request or response, as a stranger would write it."""
    number = draw.getrandbits(40)
    # There are few INVITEs, because the callee retransmits its 200 for 32 s to a caller that sends no ACK.
    method = draw.choice(METHODS) if draw.random() < 0.5 else draw.choice(METHODS[1:])
    tag = f";tag={draw.getrandbits(32):x}" if draw.random() < 0.4 else ""
    if draw.random() < 0.25:
        first, vias = f"SIP/2.0 {draw.choice(STATUSES)}", [edge.address, "127.0.0.88:9"]
    else:
        first, vias = f"{method} sip:user{number % 100}@{edge.address} SIP/2.0", ["127.0.0.88:9"]
    lines = [first]
    lines += [f"Via: SIP/2.0/UDP {via};branch=z9hG4bK{number:x}" for via in vias]
    lines += [
        f"From: <sip:stranger@127.0.0.88>;tag={number:x}",
        f"To: <sip:user@{edge.address}>{tag}",
        f"Call-ID: fuzz-{number:x}@127.0.0.1",
        f"CSeq: {draw.randrange(1, 1000)} {method}",
        "Contact: <sip:stranger@127.0.0.88:9>",
        "Max-Forwards: 70",
        "Content-Length: 0",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def mutate(draw: random.Random, data: bytes) -> bytes:
    """Damages a message a few times, mostly once, so that the rest can still be parsed."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        at = draw.randrange(len(data) + 1)
        to = min(len(data), at + draw.randrange(1, 40))
        match draw.choices(list(DAMAGES), list(DAMAGES.values()))[0]:
            case "noise":
                data = data[:at] + draw.randbytes(to - at) + data[to:]
            case "gap":
                data = data[:at] + data[to:]
            case "foreign":
                data = data[:at] + draw.choice(PIECES) + data[at:]
            case "end":
                data = data[:at]
            case "order":
                first, *headers = data.split(b"\r\n")
                draw.shuffle(headers)
                data = b"\r\n".join([first, *headers])
            case "echo":
                data = data[:to] + data[at:to] * draw.choice((1, 2, 50)) + data[to:]
            case "flood":
                data = data[:at] + draw.choice(PIECES) * draw.randrange(1, 2000) + data[at:]
    return data[:DATAGRAM_MAX]


def datagram(draw: random.Random, edge: tidegate.Edge) -> bytes:
    if draw.random() < 0.1:
        return draw.randbytes(draw.randrange(0, 1500))
    whole = whole_message(draw, edge)
    return whole if draw.random() < 0.05 else mutate(draw, whole)


def strangers() -> list[socket.socket]:
    """Returns sockets that send and never read. The kernel drops packets to them when their buffers are full."""
    opened = []
    for _ in range(STRANGERS):
        stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        stranger.bind((STRANGER, 0))
        opened.append(stranger)
    return opened


def send_all(seed: int, edge: tidegate.Edge, process: Process) -> tuple[int, int]:
    """Sends the datagrams. Returns their number, and the largest memory seen meanwhile."""
    draw, senders, peak, sent = random.Random(seed), strangers(), 0, 0
    begun = time.monotonic()
    while sent < DATAGRAMS and process.running():
        senders[sent % STRANGERS].sendto(datagram(draw, edge), (LOCALHOST, edge.port))
        sent += 1
        ahead = begun + sent / RATE - time.monotonic()
        if ahead > 0.005:
            time.sleep(ahead)
        if sent % RATE == 0:
            peak = max(peak, process.resident_bytes())
    for stranger in senders:
        stranger.close()
    return sent, peak


# The statuses that a stranger gets when it asks to be relayed. A request within an unknown call may also get 481 (RFC
# 3261 §12.2.2). An ACK and a response get no response (§17).
REJECTED = ("403",)
UNKNOWN = ("403", "481")
UNANSWERED = ()


class Attempt(NamedTuple):
    """One attempt to make Tidegate send something elsewhere."""

    name: str
    datagram: bytes
    answers: tuple[str, ...]
    """The status codes that may answer it."""


def relay_attempts(edge: tidegate.Edge, away: str) -> list[Attempt]:
    """Returns attempts of a stranger to make Tidegate send something to the address `away`."""
    here, there = f"Route: <sip:{edge.address};lr>\r\n", f"Route: <sip:{away};lr>\r\n"
    token = f"Route: <sip:{'A' * 32}@{edge.address};lr>\r\n"
    numbers, stranger, victim = itertools.count(), f"{STRANGER}:9", f"sip:victim@{away}"

    def request(method: str, routes: str = "", tag: str = "") -> bytes:
        call, to = f"relay-{next(numbers)}", f"<{victim}>{tag}"
        options: dict[str, Any] = {"call": call, "branch": f"z9hG4bK{call}", "from_tag": "s"}
        return message.request(method, victim, stranger, to=to, via=";rport", more=routes, **options)

    response = request("INVITE").partition(b"From:")[2]
    vias = "".join(f"Via: SIP/2.0/UDP {at};branch=z9hG4bKforged\r\n" for at in (edge.address, away))
    tagged = ";tag=t"
    return [
        Attempt("INVITE elsewhere", request("INVITE"), REJECTED),
        Attempt("INVITE with a Route elsewhere", request("INVITE", there), REJECTED),
        Attempt("MESSAGE with our Route, then another", request("MESSAGE", here + there), REJECTED),
        Attempt("BYE of no call", request("BYE", tag=tagged), UNKNOWN),
        Attempt("BYE of no call with a Route elsewhere", request("BYE", there, tagged), UNKNOWN),
        Attempt("BYE with a forged token", request("BYE", token, tagged), UNKNOWN),
        Attempt("ACK with a Route elsewhere", request("ACK", there, tagged), UNANSWERED),
        Attempt("200 with a forged branch", f"SIP/2.0 200 OK\r\n{vias}From:".encode() + response, UNANSWERED),
    ]


def first_lines(receiver: socket.socket, seconds: float) -> list[str]:
    """Returns the start lines of the messages that arrive within this number of seconds."""
    lines, until = [], time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        receiver.settimeout(left)
        try:
            lines.append(receiver.recv(65536).split(b"\r\n")[0].decode(errors="replace"))
        except TimeoutError:
            break
    return lines


def ask_to_relay(record: Record, edge: tidegate.Edge) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as victim:
        victim.bind((VICTIM, 0))
        for attempt in relay_attempts(edge, f"{VICTIM}:{victim.getsockname()[1]}"):
            # Each attempt has its own socket, so that a late answer is not mistaken for that of another attempt.
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.bind((STRANGER, 0))
                stranger.sendto(attempt.datagram, (LOCALHOST, edge.port))
                answers = first_lines(stranger, 0.5)
                relayed = first_lines(victim, 0.1)
            statuses = [line.split()[1] for line in answers]
            as_it_should = all(status in attempt.answers for status in statuses)
            record.expect(
                not relayed and as_it_should and bool(statuses) == bool(attempt.answers),
                f"{attempt.name}: answered {answers}, relayed {relayed}",
            )


def one_seed(record: Record, seed: int) -> dict[str, Any]:
    print(f"seed {seed}: {DATAGRAMS:,} datagrams at {RATE:,}/s beside {CALL_RATE_CPS} calls/s")
    with Stage() as stage:
        # Some of these messages make SIPp exit when it is the callee. Our callee must not exit.
        backends = [tidegate.callee(stage, name) for name in ("first", "second")]
        edge = tidegate.start(stage, [backend.port for backend in backends], mode="transaction")
        process = edge.process

        calls = CALL_RATE_CPS * (DATAGRAMS // RATE + 4)
        caller = sipp.caller(stage, "caller", edge.address, rate_cps=CALL_RATE_CPS, calls=calls, hold_ms=200)
        time.sleep(2)
        before = process.resident_bytes()
        sent, peak = send_all(seed, edge, process)
        ended = caller.process.wait(60)
        after = process.resident_bytes()

        record.expect(process.running(), "Tidegate still runs")
        record.expect(all(backend.process.running() for backend in backends), "the callees still run")
        asked = caller.calls()
        record.expect(ended and asked.created == calls and asked.clean, f"the calls beside the datagrams: {asked}")
        record.expect(
            max(peak, after) - before <= GROWTH_MAX_BYTES,
            f"memory {before / 2**20:.1f} MiB before, {peak / 2**20:.1f} at most, {after / 2**20:.1f} after",
        )
        if process.running():
            ask_to_relay(record, edge)
            record.text(f"{seed}.metrics", edge.metrics().text)
        record.keep(stage.directory / "tidegate.log", prefix=f"{seed}-")
        return {
            "seed": seed,
            "datagrams": sent,
            **asdict(asked),
            "resident_before_bytes": before,
            "resident_peak_bytes": peak,
            "resident_after_bytes": after,
            "drops": process.drops(),
        }


class Show(Demonstration):
    def run(self) -> Results:
        return {"runs": self.rows("runs", [one_seed(self, seed) for seed in self.rounds])}
