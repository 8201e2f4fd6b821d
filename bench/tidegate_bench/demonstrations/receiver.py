"""A receiver is killed for 10 s: its senders lose only calls in flight, and 2 s after its return goodput is full

Three Tidegates that obey feedback send twice the capacity to a receiver whose processor is emulated (72 calls/s). The
receiver gives feedback by `loss` (RFC 7339). The senders keep transactions, and probe the receiver every half second
(`[pool.health]`). Eight seconds after the first call the receiver is killed by SIGKILL. It starts again 10 s later.
SIPp makes the calls and records when each is set up. A call is lost if it is neither rejected nor set up and ended.
Goodput is the number of calls that are set up within 500 ms. The figures are for each half second, and the raw data
for each tenth of a second.
"""

import signal
import time
from typing import Any

from tidegate_bench import feedback, sipp_load, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.feedback import CAPACITY_CPS, SENDERS
from tidegate_bench.load import DEADLINE_S, REST_S, Load
from tidegate_bench.process import Stage
from tidegate_bench.tidegate import Edge, run

LOAD = 2.0
# The calls of the first seconds do not count.
WARM_UP_S = 3.0
KILL_AFTER_S = 8.0
AWAY_S = 10.0
AFTER_S = 12.0
BIN_S = 0.1

INTERVAL_S = 0.5
TIMEOUT_S = 0.5
HEALTH = f'\n[pool.health]\nprobe = "options"\ninterval_s = {INTERVAL_S}\ntimeout_ms = {1000 * TIMEOUT_S:.0f}\n'
# The longest time until probes show that a server is down: `fall` probes in a row must fail, and `jitter` may make each
# interval a tenth longer (docs/guide/back-ends.md).
STOPPED_MAX_S = 3 * 1.1 * INTERVAL_S + TIMEOUT_S
# Time from reading the counts of open calls to the death of the receiver.
BETWEEN_S = 0.1
RECOVERED_MAX_S = 2.0
# Goodput is full if it is at least this part of the capacity. In one second the 72 calls may differ by some 4, because
# some wait when it begins and when it ends.
FULL = 0.9
# From `RECOVERED_MAX_S` after the return to the end, it is at least this part of the goodput before.
KEPT_MIN = 0.97


class Course:
    """The calls that were set up in time, by their time after the death of the receiver."""

    def __init__(self, set_up_at: list[float]) -> None:
        self.set_up_at = set_up_at

    def goodput(self, begin: float, end: float) -> float:
        """Returns the goodput between two times, as a part of the capacity."""
        return sum(begin <= at < end for at in self.set_up_at) / (end - begin) / CAPACITY_CPS

    def recovered_s(self, returned: float, end: float) -> float | None:
        """Returns the seconds from the return of the receiver to the start of the first second with full goodput."""
        for step in range(round((end - 1 - returned) / BIN_S)):
            begin = returned + step * BIN_S
            if self.goodput(begin, begin + 1) >= FULL:
                return round(step * BIN_S, 1)
        return None


def one(show: "Show", round_: int) -> dict[str, Any]:
    calls = Load(LOAD * CAPACITY_CPS / SENDERS, WARM_UP_S, KILL_AFTER_S - WARM_UP_S + AWAY_S + AFTER_S, round_)
    with Stage() as stage:
        callee, receiver = feedback.receiver(stage, show.profile, feedback.given())
        senders = [
            feedback.sender(stage, receiver, show.profile, index, mode="transaction", health=HEALTH)
            for index in range(SENDERS)
        ]
        callers, started, scenario = [], [], sipp_load.behind_transactions(stage)
        for index, sender in enumerate(senders):
            started.append(time.monotonic())
            callers.append(sipp_load.start(stage, f"uac-{index}", sender.address, calls, scenario=scenario))
        begun = time.monotonic()

        def wait_until(after_s: float) -> None:
            time.sleep(max(0.0, begun + after_s - time.monotonic()))

        def assigned() -> int:
            return sum(sender.metrics().total("backend_assigned") for sender in senders)

        wait_until(KILL_AFTER_S)
        in_flight = sum(sender.metrics().value("backend_calls") for sender in senders)
        receiver.process.send(signal.SIGKILL)
        killed = time.monotonic()
        stopped_s = stop_s(senders)
        assigned_then = assigned()
        time.sleep(max(0.0, killed + AWAY_S - time.monotonic()))
        assigned_after = assigned() - assigned_then
        run(stage, receiver, show.profile, "receiver")
        returned = time.monotonic() - killed
        wait_until(calls.seconds + REST_S)
        end = begun + calls.seconds - killed
        counts = [caller.finish() for caller in callers]
        drops = callee.process.drops() + sum(caller.process.drops() for caller in callers)
        course = Course(
            sorted(
                start + at - killed
                for start, caller in zip(started, callers, strict=True)
                for at, delay in caller.response_times()
                if delay <= DEADLINE_S
            )
        )
        show.keep(*stage.directory.glob("*.log"), *stage.directory.glob("*.errors"), prefix=f"{round_}-")
        stage.kill()
    bins = [round((step - (KILL_AFTER_S - WARM_UP_S) / BIN_S) * BIN_S, 1) for step in range(round(end / BIN_S))]
    show.rows(f"goodput-{round_}", [{"at_s": at, "goodput": round(course.goodput(at, at + BIN_S), 3)} for at in bins])
    before = course.goodput(WARM_UP_S - KILL_AFTER_S, 0)
    after = course.goodput(returned + RECOVERED_MAX_S, end)
    return {
        "round": round_,
        "before": round(before, 4),
        "in_flight": round(in_flight),
        "stopped_s": stopped_s,
        "assigned_after": assigned_after,
        "away_s": round(returned, 2),
        "recovered_s": course.recovered_s(returned, end),
        "after": round(after, 4),
        "created": sum(count.created for count in counts),
        "lost": sum(count.created - count.successful for count in counts),
        "late": round(calls.rate_cps * calls.seconds) * SENDERS - sum(count.created for count in counts),
        "drops": drops,
        "halves": " ".join(f"{course.goodput(at / 2, at / 2 + 0.5):.2f}" for at in range(-4, int(2 * end))),
    }


def stop_s(senders: list[Edge]) -> float | None:
    """Returns the seconds until no sender has an available back end, or `None` after `STOPPED_MAX_S`."""
    began = time.monotonic()
    while time.monotonic() - began < STOPPED_MAX_S:
        if not any(sender.metrics().value("backend_up") for sender in senders):
            return round(time.monotonic() - began, 3)
        time.sleep(0.01)
    return None


class Show(Demonstration):
    PROFILE = "release"

    def run(self) -> Results:
        rows = [one(self, round_) for round_ in self.rounds]
        self.rows("runs", rows)
        for row in rows:
            print(f"round {row['round']}, goodput of each half second, from 2 s before the death:\n  {row['halves']}")
        for row in rows:
            print(f"round {row['round']}: {row['created']} calls, {row['in_flight']} in flight at the death")
            self.expect(row["before"] >= FULL, f"goodput before the death: {row['before']:.3f} of the capacity")
            self.expect(
                row["stopped_s"] is not None,
                f"the senders stopped after {row['stopped_s']} s, of at most {STOPPED_MAX_S:.2f} s",
            )
            self.expect(row["assigned_after"] == 0, f"from then on they sent {row['assigned_after']} calls")
            lost_max = row["in_flight"] + round(CAPACITY_CPS * BETWEEN_S)
            self.expect(row["lost"] <= lost_max, f"{row['lost']} calls were lost, of at most {lost_max} in flight")
            self.expect(
                row["recovered_s"] is not None and row["recovered_s"] <= RECOVERED_MAX_S,
                f"goodput was full {row['recovered_s']} s after the return",
            )
            self.expect(
                row["after"] >= KEPT_MIN * row["before"],
                f"from {RECOVERED_MAX_S:g} s after the return to the end it was {row['after']:.3f} of the capacity",
            )
            self.expect(row["late"] == 0, f"SIPp has not begun {row['late']} calls")
            self.expect(row["drops"] == 0, f"the callers and the answerer lost {row['drops']} datagrams")
        table.show_spreads(rows, {"before": 3, "after": 3, "lost": 0, "in_flight": 0})
        return {"runs": rows}
