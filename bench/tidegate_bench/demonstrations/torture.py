"""A running Tidegate handles all torture messages of RFC 4475 and RFC 5118, and then 1,000 normal calls

Each message is sent over UDP to a Tidegate that is known as services.example.com and as 2001:db8::10. It must be
forwarded, answered or ignored as crates/proxy/tests/behaviour/verdicts.toml says for an unknown sender. A forwarded
message must leave complete, and the back end's answer must come back through all Vias. Then SIPp makes 1,000 calls
through the same process, and none may fail. The counters must agree with the messages, and with transactions no state
may be left at the end.
"""

import random
import re
import select
import socket
import time
import tomllib
from collections import Counter
from typing import Any, NamedTuple

from tidegate_bench import sipp, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.record import ROOT, Record
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.watch import Watch

VERDICTS = ROOT / "crates/proxy/tests/behaviour/verdicts.toml"
MESSAGES = ROOT / "crates/sip/tests"
CALLS = 1000
CALL_RATE_CPS = 100
# RFC 3261 §18.2.2: responses go to the port in the top Via, or to the default one of its
# transport. These are all that the messages name.
PORTS = (5060, 5061, 5050, 5070, 6050, 19823)
# The status of the back end's answers, which Tidegate itself never sends.
BACKEND_STATUS = 480
# A time longer than any reaction takes here. The test waits this long for each ignored message.
PATIENCE_S = 0.4

LINE = re.compile(rb"([^\r\n:]+?)[ \t]*:((?:[^\r\n]|\r\n[ \t])*)\r\n")
COMPACT = {b"v": b"via", b"f": b"from", b"t": b"to", b"i": b"call-id", b"l": b"content-length"}


class Entry(NamedTuple):
    """One message and its expected handling."""

    name: str
    section: str
    data: bytes
    verdict: str
    has: list[str]
    lacks: list[str]


def entries() -> list[Entry]:
    """Reads the part of the table for a stranger."""
    listed = []
    for row in tomllib.loads(VERDICTS.read_text())["message"]:
        folder = "rfc" + row["section"].split()[1]
        data = (MESSAGES / folder / f"{row['name']}.dat").read_bytes()
        verdict = row.get("stranger", row["verdict"][0])
        same = verdict == row["verdict"][0]
        has, lacks = row.get("has", []) if same else [], row.get("lacks", []) if same else []
        listed.append(Entry(row["name"], row["section"], data, verdict, has, lacks))
    return listed


def fields(message: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the header fields by their long names. Values keep their line folds."""
    _, _, rest = message.partition(b"\r\n")
    head = rest.split(b"\r\n\r\n")[0] + b"\r\n"
    found = ((name.lower(), value) for name, value in LINE.findall(head))
    return [(COMPACT.get(name, name), value) for name, value in found]


def in_order(listed: list[Entry]) -> list[list[Entry]]:
    """Divides the messages into rounds, so that none is taken for a retransmission of another one.

    The first round has the messages that leave no transaction and no call behind. They come first, because some share a
    Call-ID with others. Of the other messages, those that share a transaction (RFC 3261 §17.2.3: branch, sent-by and
    method) are in different rounds.
    """
    rounds: list[list[Entry]] = [[entry for entry in listed if entry.verdict != "forwarded"]]
    for entry in listed:
        if entry.verdict == "forwarded":
            later = (known for known in rounds[1:] if all(key(e) != key(entry) for e in known))
            fits = next(later, None)
            if fits is None:
                rounds.append(fits := [])
            fits.append(entry)
    return rounds


def key(entry: Entry) -> tuple[bytes, bytes]:
    """Returns the parts of a message that identify its transaction. They suffice for these messages only."""
    return all_of(entry.data, b"via")[0].strip(), entry.data.split(b" ")[0]


def all_of(message: bytes, name: bytes) -> list[bytes]:
    return [value for other, value in fields(message) if other == name]


def first(message: bytes, name: bytes) -> bytes:
    return (all_of(message, name) or [b""])[0].strip()


def answer(request: bytes) -> bytes:
    """Returns the back end's final response to a request."""
    lines = [b"SIP/2.0 %d Temporarily Unavailable\r\n" % BACKEND_STATUS]
    for name, value in fields(request):
        if name in (b"via", b"from", b"to", b"call-id", b"cseq", b"record-route"):
            tag = b";tag=backend" if name == b"to" and b"tag" not in value else b""
            lines.append(name + b":" + value + tag + b"\r\n")
    return b"".join(lines) + b"\r\n"


def ack(request: bytes, response: bytes) -> bytes:
    """Returns the ACK to a final response other than 2xx (RFC 3261 §17.1.1.3)."""
    _, uri, _ = request.split(b"\r\n")[0].split(b" ")
    number = first(request, b"cseq").split()[0]
    lines = [b"ACK " + uri + b" SIP/2.0", b"Via:" + all_of(request, b"via")[0]]
    lines += [b"Max-Forwards: 70", b"To: " + first(response, b"to")]
    lines += [b"From: " + first(request, b"from"), b"Call-ID: " + first(request, b"call-id")]
    return b"\r\n".join([*lines, b"CSeq: " + number + b" ACK", b"", b""])


class Stranger:
    """The sender of the messages, with a socket at each port to which an answer may go."""

    def __init__(self) -> None:
        # An address of this machine that nobody else has.
        self.address = ".".join(["127", *(str(random.randrange(1, 255)) for _ in range(3))])
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in PORTS]
        for receiver, port in zip(self.sockets, PORTS, strict=True):
            receiver.bind((self.address, port))

    def send(self, data: bytes, port: int) -> None:
        self.sockets[0].sendto(data, (LOCALHOST, port))


class Seen:
    """The observed handling of one message."""

    def __init__(self, entry: Entry) -> None:
        self.forwarded: list[bytes] = []
        self.answers: list[bytes] = []
        self._identity = (first(entry.data, b"call-id"), first(entry.data, b"cseq").split())

    def is_about(self, message: bytes) -> bool:
        """Returns whether a message belongs to this request, and not to an earlier one."""
        return (first(message, b"call-id"), first(message, b"cseq").split()) == self._identity

    def verdict(self) -> str:
        statuses = {one.split(b" ")[1].decode() for one in self.answers} - {"100"}
        if self.forwarded:
            whole = statuses == {str(BACKEND_STATUS)} and len(self.forwarded) == 1
            return "forwarded" if whole else f"forwarded {len(self.forwarded)}, {statuses}"
        return " ".join(sorted(statuses)) or "ignored"


def watch(entry: Entry, edge_port: int, stranger: Stranger, backend: socket.socket) -> Seen:
    """Sends one message and waits until its verdict is clear, or until a time limit."""
    seen = Seen(entry)
    stranger.send(entry.data, edge_port)
    until = time.monotonic() + PATIENCE_S
    while (left := until - time.monotonic()) > 0 and seen.verdict() != entry.verdict:
        for ready in select.select([backend, *stranger.sockets], [], [], left)[0]:
            data, source = ready.recvfrom(65536)
            if not seen.is_about(data):
                continue
            if ready is backend:
                seen.forwarded.append(data)
                backend.sendto(answer(data), source)
            else:
                seen.answers.append(data)
                final = not data.startswith(b"SIP/2.0 100")
                if final and seen.forwarded and entry.data.startswith(b"INVITE "):
                    stranger.send(ack(entry.data, data), edge_port)
    return seen


def judge(record: Record, entry: Entry, seen: Seen) -> str:
    found = seen.verdict()
    held = found == entry.verdict
    told = seen.forwarded or [one for one in seen.answers if b" 100 " not in one[:12]]
    for sent in told[:1]:
        missing = [text for text in entry.has if text.encode() not in sent]
        extra = [text for text in entry.lacks if text.encode() in sent]
        held = held and not missing and not extra
    if seen.forwarded:
        # RFC 3261 §16.6 item 8, §16.7 item 3: one Via more on the way there, none on the way back.
        vias = [len(all_of(data, b"via")) for data in (entry.data, seen.forwarded[0])]
        back = [len(all_of(data, b"via")) for data in seen.answers]
        held = held and vias[1] == vias[0] + 1 and set(back) == {vias[0]}
    record.expect(held, f"{entry.section} {entry.name}: {found}")
    return found


def one_mode(record: Record, mode: str) -> list[dict[str, Any]]:
    print(f"{mode}: {len(entries())} messages, then {CALLS} calls")
    stranger = Stranger()
    with Stage() as stage, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as backend:
        backend.bind((LOCALHOST, 0))
        callee = sipp.callee(stage, "callee")
        edge = tidegate.start(
            stage,
            [callee.port],
            mode=mode,
            listen='advertise = "services.example.com:5060"\n',
            tables=f"""
[[pool]]
name = "torture"
mode = "{mode}"
[[pool.backend]]
uri = "sip:{LOCALHOST}:{backend.getsockname()[1]}"

[[route]]
from = "{stranger.address}/32"
to = "torture"

[[route]]
to = "app"

[[listen]]
transport = "udp"
address = "[::1]:{free_port()}"
advertise = "[2001:db8::10]:5060"
""",
        )
        rows = []
        for number, listed in enumerate(in_order(entries())):
            if number > 1:
                # Wait until the transactions of the previous round have ended.
                Watch(edge).until_empty()
            for entry in listed:
                seen = watch(entry, edge.port, stranger, backend)
                found = judge(record, entry, seen)
                row = {"mode": mode, "name": entry.name, "asked": entry.verdict, "found": found}
                rows.append(row)
        caller = sipp.caller(stage, "caller", edge.address, rate_cps=CALL_RATE_CPS, calls=CALLS, hold_ms=100)
        ended = caller.process.wait(CALLS / CALL_RATE_CPS + 60)
        asked = caller.calls()
        record.expect(edge.process.running(), "the same process still runs")
        record.expect(ended and asked.created == CALLS and asked.clean, f"the calls after the messages: {asked}")
        kept, after_s = Watch(edge).until_empty()
        record.expect(not any(kept), f"{after_s:.1f} s later nothing is left: {kept}")
        counters(record, rows, edge.metrics())
        record.text(f"{mode}.metrics", edge.metrics().text)
        logs = ("tidegate.log", "caller.log", "callee.log", "caller.errors", "callee.errors")
        record.keep(*(stage.directory / log for log in logs), prefix=f"{mode}-")
        return rows


def counters(record: Record, rows: list[dict[str, Any]], shown: tidegate.Metrics) -> None:
    """Expects the counters of the process to agree with the observed messages."""

    asked = Counter(row["asked"] for row in rows)
    statuses = sorted(status for status in asked if status.isdigit())
    own = {status: shown.total("replies", status=status) for status in statuses}
    record.expect(
        all(own[status] == asked[status] for status in statuses),
        "the counts of replies agree: " + ", ".join(f"{n} x {s}" for s, n in own.items()),
    )
    reasons = ("malformed", "rejected_ack", "foreign_response", "lost_response", "stray_response")
    dropped = {reason: shown.total("messages_dropped", reason=reason) for reason in reasons}
    record.expect(sum(dropped.values()) == asked["ignored"], f"{asked['ignored']} ignored, counted as {dropped}")


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        rows = [row for mode in ("transaction", "stateless") for row in one_mode(self, mode)]
        self.rows("messages", rows)
        return {"messages": rows}
