"""20,000 calls by SIPp and by our own caller, at 1,000 and 2,000 a second: no call fails, and no state is left

Tidegate stands in front of two back ends, each a SIPp, and selects them in turn. SIPp's built-in caller and callee
ignore Record-Route, so the call table routes their ACK and BYE. Our own caller follows the route set. Every call must
succeed by the counts of the caller, and each back end must have served half of the calls by its own count. Tidegate
keeps a server and a client transaction for every INVITE and BYE. 64·T1 + T4 after the last message its tables must be
empty.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tidegate_bench import sipp, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.record import Record
from tidegate_bench.sipp import Sipp
from tidegate_bench.table import Column
from tidegate_bench.tidegate import Caller
from tidegate_bench.watch import Watch

CALLS = 20_000
# The largest difference between the back ends, as a part of all calls.
UNEVEN_MAX = 0.001

# The caller of each generator, and SIPp's scenario for its callee.
PARTIES: dict[str, tuple[Callable[..., Sipp | Caller], str]] = {
    "sipp": (sipp.caller, "uas"),
    "tidegate": (tidegate.caller, "uas-record-route"),
}
LOADS = [("sipp", 1000), ("sipp", 2000), ("tidegate", 2000)]


def one_load(record: Record, round_: int, generator: str, rate: int) -> dict[str, Any]:
    print(f"round {round_}: {CALLS:,} calls by {generator}, {rate:,} a second")
    with Stage() as stage:
        start_caller, scenario = PARTIES[generator]
        backends = [sipp.callee(stage, name, scenario) for name in ("first", "second")]
        edge = tidegate.start(stage, [backend.port for backend in backends], mode="transaction")
        watch = Watch(edge)
        before_ns = edge.process.cpu_ns()
        caller = start_caller(stage, "caller", edge.address, rate_cps=rate, calls=CALLS)

        def calling() -> bool:
            # After the end of the caller, its drops can no longer be read.
            caller.process.drops()
            return caller.process.running()

        ended = watch.while_(calling, CALLS / rate + 90)
        cpu_us = (edge.process.cpu_ns() - before_ns) / 1000 / CALLS
        empty, told = watch.empty()
        metrics = edge.metrics()
        record.text(f"{generator}-{rate}-{round_}.metrics", metrics.text)
        processes = (edge.process, caller.process, *(backend.process for backend in backends))
        drops = sum(process.drops() for process in processes)

        asked = caller.calls()
        served = [backend.finish() for backend in backends]
        first, second = (backend.created for backend in served)
        record.expect(ended and asked.created == CALLS and asked.clean, f"the caller: {asked}")
        record.expect(
            first + second == CALLS and all(backend.clean for backend in served),
            f"the back ends served {first:,} + {second:,} calls, and all of them ended",
        )
        record.expect(abs(first - second) <= UNEVEN_MAX * CALLS, f"they differ by {abs(first - second)} calls")
        record.expect(drops == 0, f"{drops} datagrams were dropped at sockets")
        record.expect(empty, told)
        again = metrics.total("requests_resent") + metrics.total("responses_resent")
        row = {"round": round_, "generator": generator, "rate_cps": rate, **asdict(asked)}
        row |= {"first_backend": first, "second_backend": second}
        return row | {"tidegate_us_per_call": round(cpu_us, 1), "tidegate_retransmissions": again, "drops": drops}


class Show(Demonstration):
    def run(self) -> Results:
        runs = ((round_, *load) for round_ in self.rounds for load in LOADS)
        rows = self.rows("runs", [one_load(self, *run) for run in runs])
        columns = [Column("Tidegate's CPU with reads of its metrics, µs a call", "tidegate_us_per_call", 1, "spread")]
        table.show(rows, columns, line=lambda row: f"{row['generator']:9} at {row['rate_cps']:5,} calls/s")
        return {"runs": rows}
