"""INVITEs with forged To-tags and emergency marks at 4 times the capacity: none passes the gate

Tidegate emulates a server of 200 calls/s with the law `pi`. SIPp sets up 300 calls. Then an unknown sender floods the
server with INVITEs that claim to be within a call (by a To-tag), to be an emergency (by the URN in the Request-URI, or
by Resource-Priority), or all of this. Tidegate must treat them as new calls: it must count them as such, reject the
same share of them, and must not treat any as an in-dialog request. The 300 calls, each with a re-INVITE and a BYE
during the flood, must all complete. New well-formed calls during the flood must get the share that the law allows
everyone.
"""

import itertools
import random
import threading
import time
from typing import Any

from tidegate_bench import message, sipp, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.load import Load, offer
from tidegate_bench.overload import Scenario, Variant
from tidegate_bench.process import Stage
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.stranger import Background, Stranger

COSTS = Scenario.read().costs
LAW = Variant("pi", "arrival", "class")
HELD_CALLS = 300
HELD_RATE_CPS = 60
# Time from the set-up of a held call to its re-INVITE, and from there to its BYE.
HOLD_MS = 8000
# Time from the first held call to the flood. Until then all held calls are set up.
FLOOD_AFTER_S = HELD_CALLS / HELD_RATE_CPS + 1.0
FLOOD_S = 16.0
FLOOD_MULTIPLE = 4.0
GOOD_RATE_CPS = 40.0
WARM_UP_S = 3.0
# An address that no back end has.
STRANGER = "127.0.0.88"
# The address of the normal new calls. The held calls come from SIPp's address.
GOOD = "127.0.0.77"
# The largest allowed difference between the share of the normal calls and that of all calls.
SHARE_DIFFERENCE_MAX = 0.05
# Tidegate publishes its counts every few milliseconds while it works. When it is idle, the last few messages may be
# missing.
COUNTED_MIN = 0.999

MARKS = {
    "forged To-tag": ("sip:service@{edge}", ";tag=forged{number}", ""),
    "emergency URN": ("urn:service:sos", "", ""),
    "Resource-Priority": ("sip:service@{edge}", "", "Resource-Priority: esnet.0, wps.0\r\n"),
    "all of it": ("urn:service:sos", ";tag=forged{number}", "Resource-Priority: esnet.0\r\n"),
}


def forged(draw: random.Random, number: int, edge: str, here: str) -> bytes:
    """Returns an INVITE with one of the marks. It belongs to a call that does not exist."""
    uri, tag, priority = (text.format(edge=edge, number=number) for text in MARKS[draw.choice(list(MARKS))])
    call, cseq, branch = f"forged-{number}-{draw.getrandbits(32):x}", draw.randrange(1, 1000), f"z9hG4bKforged{number}"
    return message.request(
        "INVITE",
        uri,
        here,
        branch=branch,
        from_tag=str(number),
        call=call,
        cseq=cseq,
        to=f"<{uri}>{tag}",
        more=priority,
    )


class Counted:
    """The counts of Tidegate at one moment."""

    def __init__(self, edge: tidegate.Edge) -> None:
        shown = edge.metrics()
        self.in_dialog = shown.total("messages_received", class_="in_dialog")
        self.offered = shown.total("work_offered", bucket="session")
        self.admitted = shown.total("work_admitted", bucket="session")
        self.rejected = shown.total("work_rejected", reason="law")
        self.again = shown.total("retransmissions")
        self.lost = shown.total("udp_overflow") + shown.total("emulated_overflow")

    def since(self, before: "Counted") -> dict[str, int]:
        """Returns by how much each count has grown since `before`."""
        return {name: count - vars(before)[name] for name, count in vars(self).items()}


def one_flood(record: Record, seed: int) -> dict[str, Any]:
    rate = FLOOD_MULTIPLE * COSTS.capacity_cps
    print(f"seed {seed}: {rate:.0f} forged INVITEs/s beside {GOOD_RATE_CPS:.0f} good calls/s")
    with Stage() as stage:
        callee = tidegate.callee(stage, "uas")
        talking = sipp.callee(stage, "talking", "uas-reinvite")
        edge = tidegate.start(stage, [callee.port], tables=routes(talking.port) + LAW.tables() + COSTS.tables())
        held = sipp.caller(
            stage,
            "held",
            edge.address,
            rate_cps=HELD_RATE_CPS,
            calls=HELD_CALLS,
            scenario="uac-reinvite",
            hold_ms=HOLD_MS,
        )
        time.sleep(FLOOD_AFTER_S)
        before = Counted(edge)
        steady: list[Counted] = []
        clock = threading.Timer(WARM_UP_S, lambda: steady.append(Counted(edge)))
        stranger, draw, numbers = Stranger(edge.address, seed, STRANGER), random.Random(seed), itertools.count()

        def flood() -> None:
            stranger.flood(lambda: forged(draw, next(numbers), edge.address, stranger.here), rate, FLOOD_S)

        with Background(flood):
            clock.start()
            calls = Load(GOOD_RATE_CPS, WARM_UP_S, FLOOD_S - WARM_UP_S - 1, seed)
            good = offer(stage, edge.process, edge.address, callee, calls, host=GOOD)
            clock.join()
            in_steady = Counted(edge).since(steady[0])
        in_flood = held.calls().successful
        ended = held.process.wait(60)
        after = Counted(edge)
        record.text(f"{seed}.metrics", edge.metrics().text)
        asked, served = held.calls(), talking.finish()
        return {
            "seed": seed,
            "forged": stranger.sent,
            "held_completed": asked.successful,
            "held_completed_in_flood": in_flood,
            "held_clean": ended and asked.clean and served.clean,
            "held": str(asked),
            **after.since(before),
            "admitted_of_all": round(in_steady["admitted"] / in_steady["offered"], 4),
            "good_calls": good.calls,
            "good_offered_cps": round(good.offered_cps, 2),
            "good_goodput_cps": round(good.goodput_cps, 2),
            "good_p99_ms": good.p99_ms,
            "generator_cpu": round(good.usage.caller + good.usage.callee, 3),
            "generator_drops": good.usage.drops,
        }


def routes(talking_port: int) -> str:
    """Returns tables that send the held calls, which come from SIPp's address, to a separate back end.

    Otherwise SIPp as the callee would count admitted forged INVITEs as failed calls.
    """
    return f"""
[[pool]]
name = "talking"
[[pool.backend]]
uri = "sip:{LOCALHOST}:{talking_port}"

[[route]]
from = "{LOCALHOST}/32"
to = "talking"

[[route]]
to = "app"
"""


def judge(record: Record, row: dict[str, Any]) -> None:
    record.expect(
        row["held_clean"] and row["held_completed_in_flood"] == HELD_CALLS,
        f"all held calls complete, {row['held_completed_in_flood']} of them during the flood: {row['held']}",
    )
    record.expect(
        HELD_CALLS <= row["in_dialog"] <= HELD_CALLS + row["again"],
        f"{row['in_dialog']} requests were treated as in-dialog requests: {HELD_CALLS} re-INVITEs, "
        f"and at most {row['again']} repetitions",
    )
    new = row["forged"] + row["good_calls"]
    record.expect(
        COUNTED_MIN * new - row["lost"] <= row["offered"] <= new,
        f"{row['offered']} INVITEs were treated as new calls: {row['forged']} forged and "
        f"{row['good_calls']} good ones were sent, {row['lost']} were lost at sockets",
    )
    everybody = row["admitted_of_all"]
    share = row["good_goodput_cps"] / row["good_offered_cps"]
    record.expect(
        abs(share - everybody) <= SHARE_DIFFERENCE_MAX,
        f"of the good calls {share:.3f} were set up in time, of all new calls {everybody:.3f} admitted",
    )


class Show(Demonstration):
    def run(self) -> Results:
        rows = []
        for seed in self.rounds:
            row = one_flood(self, seed)
            judge(self, row)
            self.expect(
                row["rejected"] > row["forged"] / 2,
                f"the law rejected {row['rejected']} while {row['forged']} were forged",
            )
            rows.append(row)
        self.rows("runs", rows)
        figures = ("good_goodput_cps", "good_p99_ms", "generator_cpu", "generator_drops", "lost")
        table.show_spreads(rows, dict.fromkeys(figures, 2))
        return {"runs": rows}
