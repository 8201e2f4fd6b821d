"""A back end is killed during 1,000 calls: no new call fails, and every count returns to zero

There are three back ends, transactions, and 500 calls/s that last two seconds each. One back end is killed by SIGKILL.
A new call has failed if its INVITE did not get a 200. Calls on the dead back end cannot be ended there: their BYE is
rejected, and their counts are released. Caller and back ends count separately.
"""

import signal
import time
from typing import Any

from tidegate_bench import table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Cores, Stage
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.tidegate import Edge, Metrics

BACKENDS = 3
RATE_CPS = 500
HOLD_S = 2.0
OFFERED_S = 10.0
KILL_AFTER_S = 5.0
# Time from reading the counts of open calls to the death of the back end.
BETWEEN_S = 0.1
# The last calls are held, and the BYE of those on the dead back end may run into timer F.
AFTER_S = 40.0
# Entries of the call table, and their counts, are removed 64*T1 after their last message.
FORGOTTEN_S = 35.0

HEALTH = '\n[pool.health]\nprobe = "options"\ninterval_s = 1\ntimeout_ms = 500\n'


def one_run(record: Record, round_: int) -> dict[str, Any]:
    print(f"run {round_}")
    with Stage() as stage:
        callees = [tidegate.callee(stage, f"callee-{i}") for i in range(BACKENDS)]
        dead, living = callees[0], callees[1:]
        backends = [f"{LOCALHOST}:{callee.port}" for callee in callees]
        edge = tidegate.start(stage, backends, mode="transaction", tables=HEALTH)
        caller = tidegate.caller_for(
            stage, edge.address, rate_cps=RATE_CPS, seconds=OFFERED_S, hold=HOLD_S, seed=round_
        )
        begun = time.monotonic()
        cores = Cores(caller.process, edge.process, *(callee.process for callee in callees))
        caller.process.wait(KILL_AFTER_S)
        shown = edge.metrics()
        up, up_there = shown.value("backend_calls"), shown.value("backend_calls", backend=backends[0])
        # The drops are read before the process ends, because the kernel forgets the counts of closed sockets.
        dead_drops = dead.process.drops()
        dead.process.send(signal.SIGKILL)
        excluded_ms = exclusion_ms(edge, backends[0])
        assigned = edge.metrics().total("backend_assigned", backend=backends[0])
        caller.process.wait(max(0.0, OFFERED_S - (time.monotonic() - begun)))
        cpu = cores.used()
        # The exit status of the caller is not judged, because some calls fail.
        ended = caller.end(AFTER_S)
        drops = dead_drops + caller.process.drops() + sum(callee.process.drops() for callee in living)
        asked = caller.stats()
        shown = settled(edge)
        answered = [callee.finish() for callee in living]
        reports = (caller.report, *(callee.report for callee in living))
        record.keep(*reports, stage.directory / "tidegate.log", prefix=f"{round_}-")

    failed_new = asked["begun"] - asked["set_up"]
    counted = [shown.total("backend_assigned", backend=backend) for backend in backends]
    record.expect(up > 0.9 * RATE_CPS * HOLD_S, f"{up:.0f} calls were up when the back end was killed")
    record.expect(failed_new == 0, f"of {asked['begun']} new calls {failed_new} failed")
    record.expect(excluded_ms is not None, f"the dead back end was excluded after {excluded_ms} ms")
    record.expect(counted[0] == assigned, "no call was assigned to the dead back end from then until the end")
    lost = asked["set_up"] - asked["completed"]
    record.expect(
        ended and abs(lost - up_there) <= RATE_CPS * BETWEEN_S,
        f"{lost} calls could not be ended, of {up_there:.0f} that were open at the back end just before its end",
    )
    for had, counts in zip(counted[1:], answered, strict=True):
        record.expect(
            counts["answered"] == counts["acknowledged"] == counts["completed"],
            f"a living back end answered {counts['answered']} calls, and had as many ACK "
            f"({counts['acknowledged']}) and BYE ({counts['completed']})",
        )
        record.expect(had == counts["answered"], f"Tidegate had assigned {had} calls to this back end")
    held, work = shown.value("backend_calls"), shown.value("backend_work")
    record.expect(held == work == 0, f"at the end {held:.0f} calls and {work:.0f} transactions are counted")
    record.expect(drops == 0, f"the generator lost {drops} datagrams")
    names = ["caller", "Tidegate", *(f"back end {i + 1}" for i in range(BACKENDS))]
    print("        CPU in cores:", ", ".join(f"{name} {used:.2f}" for name, used in zip(names, cpu, strict=True)))
    row = {"run": round_, **{key: asked[key] for key in ("begun", "set_up", "completed")}, "failed_new": failed_new}
    row |= {"lost_with_it": lost, "excluded_ms": excluded_ms if excluded_ms is not None else float("inf")}
    row |= {"up_at_kill": round(up), "caller_cores": round(cpu[0], 3), "tidegate_cores": round(cpu[1], 3)}
    return row | {"drops": drops}


def exclusion_ms(edge: Edge, backend: str) -> float | None:
    """Returns the ms until the back end gets no new calls, or None if that takes more than ten seconds."""
    began = time.monotonic()
    while time.monotonic() - began < 10:
        if not edge.metrics().value("backend_up", backend=backend):
            return round(1e3 * (time.monotonic() - began), 1)
    return None


def settled(edge: Edge) -> Metrics:
    """Returns the metrics of Tidegate as soon as it counts no calls on back ends, or after `FORGOTTEN_S`."""
    deadline = time.monotonic() + FORGOTTEN_S
    while (shown := edge.metrics()).value("backend_calls") and time.monotonic() < deadline:
        time.sleep(0.2)
    return shown


class Show(Demonstration):
    def run(self) -> Results:
        print(f"{BACKENDS} back ends, {RATE_CPS} calls/s, {RATE_CPS * HOLD_S:.0f} calls up")
        rows = self.rows("runs", [one_run(self, round_) for round_ in self.rounds])
        table.show_spreads(rows, {"failed_new": 0, "excluded_ms": 1, "lost_with_it": 0})
        return {"runs": rows}
