"""The law of an overloaded Tidegate is changed ten times, and no admitted call is lost

A Tidegate slowed down to about 200 calls/s is offered twice that rate, and each call is held for a second. Meanwhile
`tidegate ctl` puts one law after the other in force, every other time with a shadow law. For each answered call ACK
and BYE must arrive, and every other call must have got a 503. Caller and callee count separately.
"""

import time
from dataclasses import dataclass
from typing import Any

from tidegate_bench import program, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.overload import Costs
from tidegate_bench.process import Cores, Stage
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.tidegate import Edge, Metrics

COSTS = Costs(offer_us=100, serve_us=700, reject_us=100)
MULTIPLE = 2
# The limit on each queue. So at most as many calls wait as this Tidegate serves in about two seconds.
SHORT_QUEUE_MAX = 400
HOLD_S = 1.0
OFFERED_S = 12.0
# The first switch is made during the overload, and the last one well before its end.
BEFORE_S = 1.0
BETWEEN_S = 0.9
# Time in which the calls that were answered last are held and end.
AFTER_S = 30.0

LAWS: list[list[str]] = [
    ["codel"],
    ["pi", "--param", "t_q=0.05"],
    ["occ"],
    ["dagor"],
    ["ohta", "--param", "hi_wm=40", "--param", "lo_wm=20", "--param", "buffer=100"],
    ["gradient2"],
    ["none"],
    ["pi", "--param", "t_q=0.2"],
    ["sired"],
    ["pi"],
]


@dataclass(frozen=True)
class Switch:
    """One switch, and the counts of new calls until then."""

    law: str
    took_ms: float
    admitted: int
    rejected: int


def one_run(record: Record, round_: int, rate: int) -> dict[str, Any]:
    print(f"run {round_}")
    with Stage() as stage:
        callee = tidegate.callee(stage, "callee")
        tables = f'[overload]\nlaw = "pi"\n{COSTS.tables()}'
        edge = tidegate.start(stage, [callee.port], mode="transaction", queue_max=SHORT_QUEUE_MAX, tables=tables)
        caller = tidegate.caller_for(stage, edge.address, rate_cps=rate, seconds=OFFERED_S, hold=HOLD_S, seed=round_)
        begun, cores = time.monotonic(), Cores(edge.process, caller.process, callee.process)
        caller.process.wait(BEFORE_S)
        switches = []
        for index, law in enumerate(LAWS):
            switches.append(switch(edge, law, shadowed=index % 2 == 1))
            caller.process.wait(BETWEEN_S)
        caller.process.wait(max(0.0, OFFERED_S - (time.monotonic() - begun)))
        cpu = cores.used()
        # The exit status of the caller is not judged, because some calls are rejected.
        ended = caller.end(AFTER_S)
        drops = caller.process.drops() + callee.process.drops()
        shown, asked, answered = edge.metrics(), caller.stats(), callee.finish()
        record.keep(caller.report, callee.report, stage.directory / "tidegate.log", prefix=f"{round_}-")
    record.rows(f"switches-{round_}", [vars(switch) for switch in switches])
    record.expect(drops == 0, f"the generator lost {drops} datagrams")
    row = {"run": round_, **judge(record, switches, ended, asked, answered, shown)}
    print(
        f"        CPU in cores: Tidegate {cpu[0]:.2f}, caller {cpu[1]:.2f}, callee {cpu[2]:.2f}; "
        f"a switch took {row['switch_ms_max']:.0f} ms at most, including the command"
    )
    names = ("tidegate_cores", "caller_cores", "callee_cores")
    return row | {name: round(used, 3) for name, used in zip(names, cpu, strict=True)} | {"drops": drops}


def judge(
    record: Record, switches: list[Switch], ended: bool, asked: dict[str, Any], answered: dict[str, Any], shown: Metrics
) -> dict[str, Any]:
    rejected = asked["failed"]["status"].get("503", 0)
    completed, begun = asked["completed"], asked["begun"]
    applied = shown.total("commands", outcome="applied")
    expected = len(LAWS) + len(LAWS) // 2
    record.expect(applied == expected, f"{applied:.0f} commands were applied, for {len(LAWS)} laws and their shadows")
    record.expect(
        ended and begun == completed + rejected,
        f"of {begun} calls {completed} were completed and {rejected} rejected by 503",
    )
    record.expect(asked["set_up"] == completed, f"each of the {asked['set_up']} calls that got a 200 was ended")
    record.expect(
        answered["answered"] == answered["acknowledged"] == answered["completed"] == completed,
        f"the callee answered {answered['answered']}, had {answered['acknowledged']} ACK and "
        f"{answered['completed']} BYE",
    )
    # After a switch a law may admit nothing for a while, because the queue of the previous law still exists.
    before, last = switches[0].admitted, switches[-1].admitted
    after = shown.total("work_admitted", bucket="session") - last
    record.expect(
        min(before, after, last - before) > 0,
        f"admitted: {before} calls before the switches, {last - before} between, {after} after",
    )
    record.expect(switches[0].rejected < switches[-1].rejected, "calls were rejected while the laws changed")
    slowest = max(switch.took_ms for switch in switches)
    found = {"begun": begun, "completed": completed, "rejected": rejected, "lost": begun - completed - rejected}
    return found | {"switch_ms_max": round(slowest, 1)}


def switch(edge: Edge, law: list[str], *, shadowed: bool) -> Switch:
    shown = edge.metrics()
    began = time.monotonic()
    order(edge, law)
    took_ms = 1e3 * (time.monotonic() - began)
    if shadowed:
        order(edge, [*law, "--shadow"])
    admitted = shown.total("work_admitted", bucket="session")
    return Switch(" ".join(law), took_ms, admitted, shown.total("work_rejected"))


def order(edge: Edge, law: list[str]) -> None:
    program.output(tidegate.built("tidegate"), "ctl", "law", *law, "--admin", f"{LOCALHOST}:{edge.admin_port}")


class Show(Demonstration):
    def run(self) -> Results:
        rate = round(MULTIPLE * COSTS.capacity_cps)
        print(f"capacity {COSTS.capacity_cps:.0f} calls/s, offered {rate} calls/s")
        rows = self.rows("runs", [one_run(self, round_, rate) for round_ in self.rounds])
        table.show_spreads(rows, {"completed": 0, "rejected": 0, "switch_ms_max": 1})
        return {"runs": rows}
