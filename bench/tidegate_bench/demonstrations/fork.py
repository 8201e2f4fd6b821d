"""A call to three agents at once: the first to answer gets the call, and the others are cancelled

The policy of the pool is `fork`. Its agents ring for 200, 400 and 600 ms. The first one must answer every call. Each of
the others must be cancelled and answer 487 while it rings. 64·T1 + T4 after the last call no state may be left.
"""

from typing import Any

from tidegate_bench import tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.record import Record
from tidegate_bench.watch import Watch

CALLS = 200
RATE_CPS = 20
RING_MS = (200, 400, 600)


def one_run(record: Record, round_: int) -> dict[str, Any]:
    print(f"round {round_}: {CALLS} calls, {RATE_CPS} a second, each to {len(RING_MS)} agents")
    with Stage() as stage:
        agents = {ms: tidegate.callee(stage, f"rings-{ms}", options=["--ring", str(ms)]) for ms in RING_MS}
        edge = tidegate.start(stage, [agent.port for agent in agents.values()], policy="fork", mode="transaction")
        watch = Watch(edge)
        caller = tidegate.caller(stage, "uac", edge.address, rate_cps=RATE_CPS, calls=CALLS)
        ended = watch.while_(caller.process.running, CALLS / RATE_CPS + 90)
        empty, told = watch.empty()
        metrics = edge.metrics()
        record.text(f"{round_}.metrics", metrics.text)

        asked, delay = caller.calls(), caller.stats()["set_up_delay"]
        record.expect(ended and asked.created == CALLS and asked.clean, f"the caller: {asked}")
        row: dict[str, Any] = {"round": round_, "calls": asked.created, "failed": asked.failed}
        for ms, agent in agents.items():
            stats = agent.finish()
            taken = CALLS if ms == min(RING_MS) else 0
            expected = {"calls": CALLS, "answered": taken, "completed": taken, "cancelled": CALLS - taken}
            found = {name: stats[name] for name in expected}
            record.expect(
                found == expected,
                f"the agent that rings for {ms} ms: {found['calls']} calls, {found['answered']} answered, "
                f"{found['completed']} completed, {found['cancelled']} cancelled",
            )
            # Without its ACK an agent retransmits the 200 or the 487.
            record.expect(stats["repeated"] == 0, f"this agent sent {stats['repeated']} responses again")
            row |= {f"{name}_{ms}_ms": count for name, count in found.items()}
        row |= {name: metrics.total(name) for name in ("cancels", "timeouts")} | {"drops": edge.process.drops()}
        record.expect(row["cancels"] == CALLS * (len(RING_MS) - 1), f"{row['cancels']} branches cancelled by Tidegate")
        record.expect(
            row["timeouts"] == row["drops"] == 0, f"{row['timeouts']} time-outs, {row['drops']} datagrams dropped"
        )
        record.expect(empty, told)
        print(f"  set-up delay: median {delay['p50_us'] / 1e3:.1f} ms")
        row |= {"resent": metrics.total("requests_resent") + metrics.total("responses_resent")}
        return row | {f"set_up_{part}_ms": delay[f"{part}_us"] / 1e3 for part in ("p50", "p99")}


class Show(Demonstration):
    def run(self) -> Results:
        return {"runs": self.rows("runs", [one_run(self, round_) for round_ in self.rounds])}
