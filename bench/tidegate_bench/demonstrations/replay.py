"""A flood is recorded on real sockets, replayed exactly, and simulated under other laws

Tidegate emulates a server of 200 calls/s with the law `pi`, and is recorded while three times as many calls are
offered for ten seconds. When the recording is given to the proxy again, every packet must be the same. The recorded
calls are then simulated under two other laws. Each of these is also run on real sockets with the same arrivals, and
the result must agree with the prediction. There are three floods. At the end the cost of recording is measured: the
CPU time of the shard for a call, alternately with and without it.
"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tidegate_bench import replay, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.load import Load, offer
from tidegate_bench.overload import Scenario, Variant
from tidegate_bench.process import Process, Stage
from tidegate_bench.record import Spread

COSTS = Scenario.read().costs
RECORDED = "pi"
OTHERS = ("occupancy", "none")
FLOOD = Load(3 * COSTS.capacity_cps, 0.0, 10.0, 0)
RING_MS = 20
# The largest allowed difference between the predicted and the measured share of calls set up in time.
DIFFERENCE_MAX = 0.05
# The load for the cost of recording: without emulation, well below the capacity of a core.
PLAIN = Load(1000, 1.0, 5.0, 1)
COST_ROUNDS = 5
COST_MAX = 1.3


@dataclass(frozen=True)
class Row:
    """A law under a flood."""

    flood: int
    law: str
    how: str
    offered: int
    in_time: float
    rejected: float
    retransmission_ratio: float
    setup_p50_ms: float | None
    setup_p99_ms: float | None

    @classmethod
    def of(cls, flood: int, how: str, row: dict[str, Any]) -> "Row":
        figures = row["figures"]
        offered = max(figures["offered"], 1)
        return cls(
            flood,
            row["law"],
            how,
            figures["offered"],
            figures["in_time"] / offered,
            figures["rejected"] / offered,
            figures["retransmission_ratio"],
            figures["setup_p50_ms"],
            figures["setup_p99_ms"],
        )

    def text(self) -> str:
        delays = ["–" if ms is None else f"{ms:.1f}" for ms in (self.setup_p50_ms, self.setup_p99_ms)]
        return (
            f"  {self.law:<10} {self.how:<12} {self.offered:6d} {self.in_time:8.1%} "
            f"{self.rejected:8.1%} {self.retransmission_ratio:8.3f} {delays[0]:>9} {delays[1]:>9}"
        )


def flood(law: str, seed: int, recording: Path) -> None:
    """Records a flood under a law."""
    with Stage() as stage:
        callee = tidegate.callee(stage, "uas", options=["--ring", str(RING_MS)])
        tables = Variant(law).tables() + COSTS.tables()
        edge = tidegate.start(stage, [callee.port], options=["--record", str(recording)], tables=tables)
        offer(stage, edge.process, edge.address, callee, replace(FLOOD, seed=seed))
        edge.process.end_in_order()


def floods(record: Demonstration, scratch: Path) -> list[Row]:
    rows: list[Row] = []
    for seed in record.rounds:
        recording = scratch / f"flood-{seed}-{RECORDED}"
        flood(RECORDED, seed, recording)
        ran = replay.replay(tidegate.built("tidegate"), recording, laws=OTHERS)
        left = [recording.with_suffix(f".{kind}") for kind in ("json", "txt")]
        record.keep(*left)
        if not record.expect(ran.exact, f"flood {seed}: {ran.line}"):
            continue
        recorded, simulated, *others = ran.figures["rows"]
        new = [Row.of(seed, "as recorded", recorded), Row.of(seed, "simulated", simulated)]
        for row in others:
            new.append(Row.of(seed, "predicted", row))
            live = scratch / f"flood-{seed}-{row['law']}"
            flood(row["law"], seed, live)
            came = replay.replay(tidegate.built("tidegate"), live, laws=(row["law"],))
            new.append(Row.of(seed, "measured", came.figures["rows"][0]))
        print(
            f"  {'law':<10} {'':<12} {'calls':>6} {'in time':>8} {'rejected':>8} "
            f"{'resent':>8} {'p50 ms':>9} {'p99 ms':>9}"
        )
        for row in new:
            print(row.text())
        rows += new
    return rows


def shard_ns(element: Process) -> int:
    """Returns the CPU time of the shard's thread so far, without that of other threads."""

    def is_shard(tid: int) -> bool:
        try:
            name = Path(f"/proc/{element.pid}/task/{tid}/comm").read_text()
        except OSError:
            return False
        return name.strip() == "shard-0"

    return sum(ns for tid, ns in element.cpu_ns_by_thread().items() if is_shard(tid))


def cost_us(recording: Path | None) -> float:
    """Returns the CPU time of the shard for a call in µs, with a recording or without."""
    with Stage() as stage:
        callee = tidegate.callee(stage, "uas")
        options = ["--record", str(recording)] if recording else []
        edge = tidegate.start(stage, [callee.port], options=options, mode="transaction")
        element = edge.process
        before = shard_ns(element)
        outcome = offer(stage, element, edge.address, callee, PLAIN)
        used = shard_ns(element) - before
        return used / 1e3 / max(outcome.calls, 1)


class Show(Demonstration):
    def run(self) -> Results:
        with Stage() as stage:
            rows = floods(self, stage.directory)
            self.rows("laws", map(asdict, rows))
            pairs = {(row.flood, row.law): row.in_time for row in rows if row.how in ("as recorded", "measured")}
            for row in rows:
                if row.how in ("simulated", "predicted"):
                    apart = abs(row.in_time - pairs[row.flood, row.law])
                    self.expect(
                        apart <= DIFFERENCE_MAX,
                        f"flood {row.flood}, {row.law}: in time {row.in_time:.1%} simulated, "
                        f"{pairs[row.flood, row.law]:.1%} real",
                    )
            costs = [
                {"round": n, "recorded": bool(file), "us_per_call": cost_us(file)}
                for n in range(COST_ROUNDS)
                for file in (None, stage.directory / "cost")
            ]
        self.rows("cost", costs)
        bare, recorded = (
            Spread.of([row["us_per_call"] for row in costs if row["recorded"] is kind]) for kind in (False, True)
        )
        print(f"CPU of the shard for a call, in µs: without the recorder {bare.text(1)}")
        print(f"                                       recorded         {recorded.text(1)}")
        ratio = recorded.median / bare.median
        self.expect(ratio <= COST_MAX, f"with recording a call costs {ratio:.2f} times the CPU time of the shard")
        return {"cost_ratio": ratio}
