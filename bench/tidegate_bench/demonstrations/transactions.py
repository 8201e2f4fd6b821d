"""20,000 calls by SIPp at 1,000 a second with transactions: no call fails, and no state is left

Tidegate stands between SIPp's built-in caller and callee, and keeps a server and a client transaction for every INVITE
and BYE. Every call must succeed by the counts of both SIPps, and no datagram may be lost. 64·T1 + T4 after the last
message both tables must be empty.
"""

from typing import Any

from tidegate_bench import sipp, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import NS, Stage
from tidegate_bench.record import Record
from tidegate_bench.watch import Watch

CALLS = 20_000
RATE_CPS = 1000
PARTIES = ("tidegate", "uac", "uas")


def one_run(record: Record, round_: int) -> dict[str, Any]:
    print(f"round {round_}: {CALLS:,} calls, {RATE_CPS:,} a second")
    with Stage() as stage:
        callee = sipp.callee(stage, "uas")
        edge = tidegate.start(stage, [callee.port], mode="transaction")
        watch = Watch(edge)
        before_ns = edge.process.cpu_ns()
        caller = sipp.caller(stage, "uac", edge.address, rate_cps=RATE_CPS, calls=CALLS)
        ended = watch.while_(caller.process.running, CALLS / RATE_CPS + 90)
        processes = (edge.process, caller.process, callee.process)
        spent_ns = [process.cpu_ns() for process in processes]
        spent_ns[0] -= before_ns
        empty, told = watch.empty()
        metrics = edge.metrics()
        record.text(f"{round_}.metrics", metrics.text)
        drops = [process.drops() for process in processes]
        asked, served = caller.calls(), callee.finish()
        record.expect(ended and asked.created == CALLS and asked.clean, f"the caller: {asked}")
        record.expect(served.created == CALLS and served.clean, f"the callee: {served}")
        record.expect(sum(drops) == 0, f"{sum(drops)} datagrams were dropped at sockets")
        record.expect(empty, told)
        again = metrics.total("requests_resent") + metrics.total("responses_resent")
        return {
            "round": round_,
            "calls": asked.created,
            "successful": asked.successful,
            "failed": asked.failed,
            "caller_retransmissions": asked.retransmissions,
            "callee_retransmissions": served.retransmissions,
            "tidegate_retransmissions": again,
            **{f"{name}_us_per_call": round(ns / 1e3 / CALLS, 1) for name, ns in zip(PARTIES, spent_ns, strict=True)},
            "cores": round(sum(spent_ns) / NS / (CALLS / RATE_CPS), 2),
            **{f"{name}_drops": count for name, count in zip(PARTIES, drops, strict=True)},
            **{f"{name}_max": count for name, count in watch.most._asdict().items()},
        }


class Show(Demonstration):
    def run(self) -> Results:
        rows = self.rows("runs", [one_run(self, round_) for round_ in self.rounds])
        costs = {f"{name}_us_per_call": 1 for name in PARTIES}
        again = {f"{name}_retransmissions": 0 for name in ("caller", "callee", "tidegate")}
        table.show_spreads(rows, costs | again)
        return {"runs": rows}
