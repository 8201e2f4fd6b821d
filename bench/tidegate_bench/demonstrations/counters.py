"""A million simulated calls and 200,000 real ones end in every possible way, and every count stays exact

Simulated: callers wait, hang up or give up. Callees answer early or late, are busy, ring forever, are silent, or
reject. Links lose and duplicate packets. Back ends crash, with and without ICMP reports, and are started again. All
this happens under each of four policies, with transactions and without. The reference model of the leases
(docs/checkers.md) runs beside each balancer. Four times a second the count of each back end is compared with the model,
and at the end with zero.

Real: SIPp is the caller and the callee. One call in ten is abandoned: its caller acknowledges the answer and then
sends nothing more. After the last call Tidegate must count exactly the abandoned calls at its back ends, and after the
idle time no calls at all.
"""

import argparse
import time
from functools import partial
from typing import Any

from tidegate_bench import program, sipp, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage, in_parallel
from tidegate_bench.record import Record
from tidegate_bench.tidegate import Edge

MODES = ("transaction", "stateless")
POLICIES = ("rr", "hash", "cjsq", "tlwl")
CALLERS = 4  # Groups of callers in a world.
BACKENDS = 3
# The memory of the checkers for a world is limited, so a world has few calls, and there are many worlds.
WORLD_CALLS = 40_000
WORLD_RATE_CPS = 400

RATE_CPS = 1500
ABANDONED_SHARE = 10  # One call in ten is abandoned.
SETTLES_S = 36.0  # A little more than 64·T1 (RFC 3261 §17).


def world(seed: int, calls: int) -> str:
    """Returns the world of a seed, as text for `tidegate lab swarm --replay`."""
    lasts_us = 1_000_000 * calls // WORLD_RATE_CPS
    crowds = "".join(
        f"[[caller]]\nto = 0\nrate_cps = {WORLD_RATE_CPS / CALLERS}\ncalls = {calls // CALLERS}\n"
        f"hold_ms = {hold_ms}\npatience_ms = {patience_ms}\nfollow_routes = {follows}\n"
        for hold_ms, patience_ms, follows in (
            (0, 60_000, "true"),
            (20_000, 10_000, "true"),
            (5_000, 2_000, "true"),
            (20_000, 30_000, "false"),
        )
    )
    mode, policy = MODES[seed % 2], POLICIES[seed // 2 % len(POLICIES)]
    late = "answer=60,busy=15,ring=8,480=4,500=4,503=1,silent=3,603=5"
    backends = "".join(
        f'[[answerer]]\nmix = "{late}"\nring_ms = {ring_ms}\nhangs_up = 0.4\nhold_ms = 10000\n'
        for ring_ms in (0, 2_000, 8_000)
    )
    # Nodes are numbered in this order: groups of callers, the proxy, the back ends.
    first = CALLERS + 1
    faults = "".join(
        f"[[fault]]\nbegins_us = {lasts_us * at // 10}\nlasts_us = {min(lasts_us // 10, 15_000_000)}\n"
        f'[fault.trouble.crash]\nnode = {first + at % BACKENDS}\nsilence = "{silence}"\n'
        for at, silence in ((1, "refused"), (3, "silent"), (5, "refused"), (7, "silent"))
    )
    return (
        f"seed = {seed}\n[link]\ndelay_us = 2000\njitter_us = 5000\nloss = 0.01\n"
        f"reorder = 0.01\nduplicate = 0.005\n{crowds}"
        f'[[proxy]]\nlayer = 0\npool = {{ mode = "{mode}", policy = "{policy}" }}\n'
        f"server = {{ call_idle_seconds = 300 }}\n{backends}{faults}"
    )


def simulate(record: Record, seed: int, calls: int, profile: str) -> dict[str, Any]:
    """Runs one world twice, and returns the result."""
    file = record.directory / f"world-{seed}.toml"
    file.write_text(world(seed, calls))
    began = time.monotonic()
    ran = program.swarm("--replay", file, profile=profile)
    return ran | {"seed": seed, "wall_s": round(time.monotonic() - began, 1)}


def simulated(record: Record, calls: int, jobs: int, profile: str) -> list[dict[str, Any]]:
    """Runs worlds until this number of calls is made."""
    each = min(calls // 4, WORLD_CALLS)
    seeds = range(1, -(-calls // each) + 1)
    print(f"simulated: {len(seeds)} worlds of {each:,} calls at {WORLD_RATE_CPS} calls/s")
    runs = list(in_parallel(jobs, partial(simulate, record, calls=each, profile=profile), seeds))
    offered = sum(run["offered"] for run in runs)
    for what in ("set_up", "completed"):
        print(f"  {what}: {sum(run[what] for run in runs):,} of {offered:,}")
    for what in ("delivered", "missing"):
        print(f"  {what}: {sum(run[what] for run in runs):,} packets")
    for run in runs:
        for finding in run["findings"]:
            print(f"  seed {run['seed']}: {finding['what']}")
    record.expect(offered >= calls, f"{offered:,} calls were made")
    record.expect(
        0.3 * offered < sum(run["completed"] for run in runs) < 0.7 * offered,
        "some calls were completed, and some were not",
    )
    record.expect(
        not any(run["findings"] for run in runs),
        "every count agreed with the reference model at all times, and was zero at the end",
    )
    record.expect(not any(run["unwatched"] for run in runs), "the checkers watched everything")
    return runs


def counted(edge: Edge) -> dict[str, int]:
    """Returns the present counts of Tidegate."""
    shown = edge.metrics()
    names = ("backend_calls", "backend_work", "calls_abandoned_total", "calls")
    return {name: round(shown.value(name)) for name in names}


def real(record: Record, round_: int, mode: str, calls: int, idle_s: int, profile: str) -> dict[str, Any]:
    """Makes calls of which one in ten is abandoned, and checks the counts before and after the idle time."""
    abandoned = calls // ABANDONED_SHARE
    print(f"real, round {round_}, {mode}: {calls:,} calls at {RATE_CPS}/s, {abandoned:,} abandoned")
    with Stage() as stage:
        backends = [sipp.callee(stage, name, "uas-record-route") for name in ("first", "second")]
        ports = [backend.port for backend in backends]
        options: dict[str, Any] = {"mode": mode, "policy": "cjsq", "server": f"call_idle_seconds = {idle_s}"}
        edge = tidegate.start(stage, ports, profile, **options)
        began = time.monotonic()
        parts = {"uac-routes": calls - abandoned, "uac-abandons": abandoned}
        callers = [
            sipp.caller(stage, scenario, edge.address, rate_cps=RATE_CPS * part / calls, calls=part, scenario=scenario)
            for scenario, part in parts.items()
        ]
        for caller in callers:
            caller.process.wait(calls / RATE_CPS + 120)
        lasted = time.monotonic() - began
        asked = [caller.calls() for caller in callers]
        record.expect(
            all(each.clean for each in asked) and sum(each.created for each in asked) == calls,
            f"the callers: {asked[0]}; {asked[1]}",
        )
        gone = asked[1].created
        before = counted(edge)
        record.expect(
            lasted < idle_s and before["calls_abandoned_total"] == 0,
            f"after {lasted:.0f} s no call has been idle for {idle_s} s",
        )
        record.expect(
            before["backend_calls"] == gone and before["backend_work"] == 0,
            f"{before['backend_calls']:,} calls are counted on the back ends, {gone:,} were abandoned",
        )
        time.sleep(max(0.0, idle_s - (time.monotonic() - began - lasted)) + SETTLES_S)
        after = counted(edge)
        record.expect(
            after["backend_calls"] == after["backend_work"] == after["calls"] == 0,
            f"after {idle_s} s without messages no call is counted, and the call table is empty",
        )
        record.expect(
            after["calls_abandoned_total"] == gone, f"{after['calls_abandoned_total']:,} calls ended as abandoned"
        )
        record.expect(edge.process.running() and edge.process.drops() == 0, "no datagram was lost")
        stage.kill()
        row = {"round": round_, "mode": mode, "calls": calls, "abandoned": gone, "lasted_s": round(lasted, 1)}
        row |= {f"before_{name}": count for name, count in before.items()}
        return row | {f"after_{name}": count for name, count in after.items()}


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--quick", action="store_true", help="make only a fiftieth of the calls, in one round")
        parser.add_argument(
            "--jobs", type=int, default=2, help="number of simulated worlds at the same time (default %(default)s)"
        )

    def run(self) -> Results:
        quick = self.options.quick
        part, idle_s, rounds = (50, 60, self.rounds[:1]) if quick else (1, 180, self.rounds)
        runs = simulated(self, 1_000_000 // part, self.options.jobs, self.profile)
        rows = [real(self, round_, MODES[round_ % 2], 200_000 // part, idle_s, self.profile) for round_ in rounds]
        self.rows("simulated", [{key: run[key] for key in run if key != "findings"} for run in runs])
        self.rows("real", rows)
        return {"simulated": runs, "real": rows}
