"""A sender that obeys feedback sets up at least as many calls as a SIPp that knows nothing of feedback

Two sources offer calls at the same rate to a receiver whose processor is emulated (72 calls/s, a rejection costs a
sixth of a message). One is a Tidegate that obeys the feedback of the receiver (RFC 7339). The other is a SIPp, which
sends straight to the receiver and repeats its INVITEs. Another SIPp calls through the Tidegate, so that both sources
have the same arrivals and count in the same way. The Tidegate keeps transactions or not. The receiver knows the
stranger in one of two ways: as one of its `peers`, or not at all. It shares its capacity by `fairness = "provider"` or
`"user"`. A call counts if it is set up within 500 ms. Both sources together must set up nearly as many calls as the
receiver can serve while it rejects the stranger's excess.
"""

import argparse
from functools import partial
from itertools import product
from typing import Any

from tidegate_bench import feedback, sipp_load, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.feedback import CAPACITY_CPS, MESSAGES, REJECT
from tidegate_bench.load import REST_S, Load
from tidegate_bench.overload import bound
from tidegate_bench.process import Stage, in_parallel
from tidegate_bench.table import Column

# The load of each of the two sources, as a multiple of the capacity.
LOADS = (1.0, 4.0)
WARM_UP_S = 3.0
# An address that the receiver can distinguish from that of the obedient sender.
STRANGER = "127.0.78.1"
# The peers of the receiver.
PEERS = {"a peer": "127.0.0.0/8", "unknown": "127.0.0.1"}
FAIRNESS = ("provider", "user")
# The modes of the obedient sender. With transactions, it sends the ACKs to rejections itself.
MODES = ("transaction", "stateless")
# The least goodput of both sources together, as a part of the bound of a receiver that gets only the stranger's calls.
# The obedient sender holds its excess back, so the receiver has only the stranger's excess to reject.
BOTH_MIN = 0.9

COLUMNS = [
    Column("obedient", "obedient_cps", 1, "spread"),
    Column("stranger", "stranger_cps", 1, "spread"),
    Column("ratio", "ratio", 3, "min"),
    Column("both/C", "both", 3),
    Column("held back", "held"),
    Column("rejected", "rejected_by_receiver"),
    Column("repeated", "stranger_repeated", 2),
]


def one(show: "Show", round_: int, load: float, mode: str, known: str, fairness: str) -> dict[str, Any]:
    calls = Load(load * CAPACITY_CPS, WARM_UP_S, show.options.seconds, round_)
    with Stage() as stage:
        tables = feedback.given(peers=PEERS[known], fairness=fairness)
        callee, receiver = feedback.receiver(stage, show.profile, tables)
        sender = feedback.sender(stage, receiver, show.profile, mode=mode)
        scenario = sipp_load.behind_transactions(stage)
        callers = [
            sipp_load.start(stage, "obedient", sender.address, calls, scenario=scenario),
            sipp_load.start(stage, "stranger", receiver.address, calls, STRANGER),
        ]
        callers[0].process.wait(calls.seconds + REST_S)
        shown, held = receiver.metrics(), sender.metrics().total("work_rejected", reason="feedback")
        show.text(f"{round_}-{load:g}-{mode}-{known.replace(' ', '-')}-{fairness}.receiver.metrics", shown.text)
        callee.process.require_running()
        drops = callee.process.drops() + sum(caller.process.drops() for caller in callers)
        for caller in callers:
            caller.process.stop()
        ours, theirs = (sipp_load.goodput_cps(caller, calls) for caller in callers)
        sent, repeated = (
            [sipp_load.rate(caller, calls, f"0_INVITE_{kind}") for caller in callers] for kind in ("Sent", "Retrans")
        )
        stage.kill()
    return {
        "round": round_,
        "load": load,
        "mode": mode,
        "stranger": known,
        "fairness": fairness,
        "obedient_cps": round(ours, 2),
        "stranger_cps": round(theirs, 2),
        "ratio": round(ours / theirs, 4) if theirs else None,
        "both": round((ours + theirs) / CAPACITY_CPS, 4),
        "held": held,
        "rejected_by_receiver": shown.total("work_rejected"),
        "stranger_repeated": round(repeated[1] / sent[1], 3),
        "sent_part": round(min(sent) / calls.rate_cps, 4),
        "drops": drops,
    }


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seconds", type=float, default=14.0, help="measured time in s (default %(default)s)")
        parser.add_argument(
            "--loads",
            type=float,
            nargs="+",
            default=LOADS,
            help="offered loads of each sender, as multiples of 72 calls/s",
        )
        parser.add_argument("--jobs", type=int, default=2, help="number of runs at once (default %(default)s)")

    def run(self) -> Results:
        runs = product(self.rounds, self.options.loads, MODES, PEERS, FAIRNESS)
        rows = list(in_parallel(self.options.jobs, partial(one, self), *zip(*runs, strict=True)))
        self.rows("runs", rows)
        table.show(
            rows,
            COLUMNS,
            lambda row: f"{row['mode']}, stranger {row['stranger']}, {row['fairness']}",
            lambda row: f"each {row['load']:g} C",
        )
        for key in product(MODES, PEERS, FAIRNESS):
            mine = [row for row in rows if (row["mode"], row["stranger"], row["fairness"]) == key]
            worse = sum(row["obedient_cps"] < row["stranger_cps"] for row in mine)
            least = min((row["ratio"] for row in mine if row["ratio"] is not None), default=None)
            mode, known, fairness = key
            where = f"{mode}, stranger {known}, {fairness}"
            self.expect(
                worse == 0,
                f"{where}: the obedient sender sets up fewer calls than the stranger in {worse} of {len(mine)} runs, "
                f"and in each run at least {least} times as many",
            )
            both = min(row["both"] / bound(row["load"], REJECT / MESSAGES) for row in mine)
            self.expect(both >= BOTH_MIN, f"{where}: both set up at least {both:.3f} of the bound")
        slow = sum(row["sent_part"] < sipp_load.SENT_MIN for row in rows)
        self.expect(slow == 0, f"a SIPp was too slow in {slow} of {len(rows)} runs")
        drops = sum(row["drops"] for row in rows)
        self.expect(drops == 0, f"the SIPps and the answerer lost {drops} datagrams")
        return {"runs": rows}
