"""Calls complete although 5 % of the datagrams are lost in each direction on both sides of Tidegate

There is a relay (`tidegate lab impair`) between the caller and Tidegate, and another between Tidegate and the callee.
Each loses 5 % of the datagrams in each direction, delays them by 20 to 30 ms, and lets 1 % overtake the others. With
transactions at least 99.9 % of the calls must complete, by retransmission alone. For comparison, a stateless Tidegate
and no Tidegate at all run behind the same links. The calls are made by our own caller and callee with three seeds, and
by SIPp.
"""

import argparse
import math
from dataclasses import dataclass
from typing import Any

from tidegate_bench import impair, sipp, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.impair import Quality, Relay
from tidegate_bench.process import Stage
from tidegate_bench.record import Record
from tidegate_bench.sipp import Sipp
from tidegate_bench.table import Column
from tidegate_bench.tidegate import Callee, Caller, Edge
from tidegate_bench.watch import until_empty

QUALITY = Quality(loss="5%", delay="20ms", jitter="10ms", reorder="1%")
COMPLETE_MIN = 0.999
# The elements between the two relays, each with its generator. With transactions the calls must complete.
PARTIES = (("transaction", "tidegate"), ("stateless", "tidegate"), ("none", "tidegate"), ("transaction", "sipp"))
# Our caller calls the address of the relay, SIPp a name.
ROUTES = '[[route]]\ndomain = ["127.0.0.1", "example.com"]\nto = "app"\n'
# Number of standard errors by which the losses of a relay may differ from the requested share.
ERRORS_MAX = 5


@dataclass
class Course:
    """A caller, a relay, perhaps Tidegate, another relay, and a callee."""

    element: str
    generator: str
    seed: int
    caller: Sipp | Caller
    callee: Sipp | Callee
    relays: tuple[Relay, Relay]
    edge: Edge | None

    @property
    def title(self) -> str:
        return f"{self.element}, {self.generator}, seed {self.seed}"


def build(stage: Stage, element: str, generator: str, seed: int, calls: int, rate_cps: int) -> Course:
    """Starts the whole path, including the caller."""
    name, with_sipp = f"{element}-{generator}", generator == "sipp"
    callee: Sipp | Callee
    if with_sipp:
        callee = sipp.callee(stage, f"{name}-uas", "uas-loss", tolerant=True)
    else:
        callee = tidegate.callee(stage, f"{name}-uas")
    # Each relay has its own seed. Otherwise both would lose the same datagrams.
    inner = impair.relay(stage, f"{name}-inner", callee.port, QUALITY, 2 * seed)
    edge = None
    if element != "none":
        edge = tidegate.start(stage, [inner.port], mode=element, tables=ROUTES, name=name)
    outer = impair.relay(stage, f"{name}-outer", edge.port if edge else inner.port, QUALITY, 2 * seed + 1)
    load: dict[str, Any] = {"rate_cps": rate_cps, "calls": calls}
    caller: Sipp | Caller
    if with_sipp:
        caller = sipp.caller(stage, f"{name}-uac", outer.address, scenario="uac-rport", tolerant=True, **load)
    else:
        # ACK and BYE go through the relay as well.
        caller = tidegate.caller(stage, f"{name}-uac", outer.address, follow_routes=False, seed=seed, **load)
    return Course(element, generator, seed, caller, callee, (outer, inner), edge)


def finish(record: Record, path: Course, calls: int, ended: bool) -> dict[str, Any]:
    """Ends a path whose caller is done, and returns the counts of its parts."""
    asked = path.caller.calls()
    row: dict[str, Any] = {"element": path.element, "generator": path.generator, "seed": path.seed}
    row |= {"calls": asked.created, "completed": asked.successful, "by_caller": asked.retransmissions}
    row |= dict.fromkeys(("by_tidegate", "absorbed", "by_callee"), 0)
    row |= dict.fromkeys(("set_up_p50_ms", "set_up_p99_ms"))
    if isinstance(path.caller, Caller):
        delay = path.caller.stats()["set_up_delay"]
        row |= {f"set_up_{part}_ms": round(delay[f"{part}_us"] / 1e3, 1) for part in ("p50", "p99")}
    if path.edge:
        kept = until_empty(path.edge)
        shown = path.edge.metrics()
        record.text(f"{path.element}-{path.generator}-{path.seed}.metrics", shown.text)
        row["by_tidegate"] = shown.total("requests_resent") + shown.total("responses_resent")
        row["absorbed"] = shown.total("retransmissions") + shown.total("messages_dropped", reason="repeated_response")
        if path.element == "transaction":
            # A call whose BYE never arrived is still in the call table.
            transactions = kept.server_transactions + kept.client_transactions
            record.expect(
                row["by_tidegate"] > 0 and transactions == 0 and kept.calls <= asked.created - asked.successful,
                f"{path.title}: Tidegate sent {row['by_tidegate']:,} messages again, absorbed "
                f"{row['absorbed']:,} retransmissions, and holds {transactions} transactions, {kept.calls} calls",
            )
    if isinstance(path.callee, Sipp):
        row["by_callee"] = path.callee.finish().retransmissions
    else:
        row["by_callee"] = path.callee.finish()["repeated"]
    carried, lost, errors = 0, 0, 0.0
    for name, relay in zip(("outer", "inner"), path.relays, strict=True):
        counts = relay.finish()
        for way in ("towards", "back"):
            received, gone = counts[way]["received"], counts[way]["lost"]
            row |= {f"{name}_{way}": received, f"{name}_{way}_lost": gone}
            off = gone - QUALITY.loss_share * received
            variance = max(received, 1) * QUALITY.loss_share * (1 - QUALITY.loss_share)
            errors = max(errors, abs(off) / math.sqrt(variance))
            carried, lost = carried + received, lost + gone + counts[way]["overflowed"]
    record.expect(
        carried > 0 and errors < ERRORS_MAX,
        f"{path.title}: {lost:,} of {carried:,} datagrams lost by the relays, in each direction "
        f"{QUALITY.loss} to within {errors:.1f} standard errors",
    )
    if path.element == "transaction":
        share = asked.successful / max(asked.created, 1)
        record.expect(
            ended and asked.created == calls and share >= COMPLETE_MIN,
            f"{path.title}: {asked.successful:,} of {asked.created:,} calls completed, {100 * share:.2f} %",
        )
    return row


def again(by: str) -> Column:
    """Returns a column with the retransmissions of this party for each call."""
    return Column(f"again by {by}", lambda row: row[f"by_{by}"] / row["calls"], 2)


COLUMNS = [
    Column("completed, %", lambda row: 100 * row["completed"] / row["calls"], 2, "spread"),
    *map(again, ("caller", "tidegate", "callee")),
    Column("set-up, ms: p50", "set_up_p50_ms"),
    Column("p99", "set_up_p99_ms"),
]


class Show(Demonstration):
    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--calls", type=int, default=3000, help="number of calls in each run (default %(default)s)")
        parser.add_argument("--rate", type=int, default=100, help="calls/s (default %(default)s)")

    def run(self) -> Results:
        calls, rate = self.options.calls, self.options.rate
        print(f"each direction of each relay: {QUALITY}; {calls:,} calls a run at {rate}/s")
        rows = []
        for seed in self.rounds:
            with Stage() as stage:
                paths = [build(stage, *parties, seed, calls, rate) for parties in PARTIES]
                ended = [path.caller.process.wait(calls / rate + 90) for path in paths]
                rows += [finish(self, path, calls, done) for path, done in zip(paths, ended, strict=True)]
        table.show(rows, COLUMNS, line=lambda row: f"{row['element']:12}{row['generator']}")
        return {"quality": vars(QUALITY), "runs": self.rows("runs", rows)}
