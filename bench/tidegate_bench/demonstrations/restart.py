"""Tidegate is restarted in the middle of 1,000 calls, and every BYE finds its back end

The calls are set up within five seconds and held for ten. After seven seconds Tidegate is ended by SIGTERM or SIGKILL,
and started again. The new process knows the calls only by the route tokens in their requests. A BYE at the wrong back
end fails there, and is missing at the right one. In a last run Tidegate is not started again, and no BYE may arrive.
Otherwise the BYEs would not have passed through it.
"""

import signal
import time
from dataclasses import asdict
from typing import Any

from tidegate_bench import sipp, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.record import Record
from tidegate_bench.table import Column

CALLS = 1000
RATE_CPS = 200
HOLD_MS = 10_000
# A time after the last call is set up (CALLS / RATE_CPS), and before the first BYE (HOLD_MS).
RESTART_AFTER_S = 7.0
CONTROL_CALLS = 100


class Calls:
    """Two back ends, Tidegate, and a caller that follows the route set. A new object has all its calls up."""

    def __init__(self, stage: Stage, calls: int) -> None:
        self.backends = [sipp.callee(stage, name, "uas-record-route") for name in ("first", "second")]
        self.edge = tidegate.start(stage, [backend.port for backend in self.backends], mode="transaction")
        self.begun = time.monotonic()
        options: dict[str, Any] = {"rate_cps": RATE_CPS, "calls": calls, "hold_ms": HOLD_MS}
        self.caller = sipp.caller(stage, "caller", self.edge.address, scenario="uac-routes", **options)
        time.sleep(RESTART_AFTER_S)


def one_restart(record: Record, round_: int, how: signal.Signals) -> dict[str, Any]:
    print(f"round {round_}: {how.name} with {CALLS:,} calls up")
    with Stage() as stage:
        up = Calls(stage, CALLS)
        away, first = time.monotonic(), up.edge.process
        first.send(how)
        record.expect(first.wait(2.5), f"Tidegate ended, with status {first.exit_status}")
        first.stop()
        restarted = tidegate.run(stage, up.edge, name="restarted")
        back = time.monotonic()
        record.expect(
            away - up.begun > CALLS / RATE_CPS and back - up.begun < HOLD_MS / 1000,
            f"away for {1000 * (back - away):.0f} ms, between the last ACK and the first BYE",
        )
        ended, asked = up.caller.process.wait(60), up.caller.calls()
        record.expect(ended and asked.created == CALLS and asked.clean, f"the caller: {asked}")
        row = {"round": round_, "signal": how.name, "away_ms": round(1000 * (back - away)), **asdict(asked)}
        for name, backend in zip(("first", "second"), up.backends, strict=True):
            served = backend.finish()
            record.expect(served.clean and served.created > 0, f"the {name} back end: {served}")
            row[f"{name}_backend"] = served.successful
        record.expect(restarted.running(), "the restarted process still runs")
        logs = ("tidegate.log", "restarted.log")
        record.keep(*(stage.directory / name for name in logs), prefix=f"{round_}-{how.name}-")
        return row


def control(record: Record) -> None:
    print(f"control: {CONTROL_CALLS} calls, and Tidegate is not started again")
    with Stage() as stage:
        up = Calls(stage, CONTROL_CALLS)
        up.edge.process.stop()
        up.caller.process.wait(90)
        asked = up.caller.calls()
        record.expect(
            asked.created == CONTROL_CALLS and asked.successful == 0, f"without Tidegate no BYE is answered: {asked}"
        )


class Show(Demonstration):
    def run(self) -> Results:
        rows = [one_restart(self, round_, how) for round_ in self.rounds for how in (signal.SIGTERM, signal.SIGKILL)]
        control(self)
        self.rows("runs", rows)
        table.show(rows, [Column("away, ms", "away_ms", 0, "spread")], line=lambda row: row["signal"])
        return {"runs": rows}
