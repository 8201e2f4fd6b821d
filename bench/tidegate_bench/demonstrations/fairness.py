"""100,000 INVITEs/s from one address and 200 calls/s from another: the calls that succeed despite the flood

Tidegate stands in front of answerers on this machine. Nothing is emulated. From one loopback address 100,000 INVITEs/s
are sent, and each 503 is acknowledged. Calls come from another address. They count if they are set up within 500 ms.
`default` has the default overload control: the law `tide`, fair shares, and the disposal `auto`. `default, limit` also
has a limit on the address of the flood, whose excess is rejected. In `default, emergency` the flood consists of calls
to `urn:service:sos`, which the kernel does not drop as long as they are few. `default, unshared` has no fair shares, so
the kernel drops the INVITEs of both sources alike. The other variants have the law `pi` and reject by 503, or drop in
Tidegate. `fair` and `fair, drop` have fair shares. `off`, `limit` and `ban` have none: nothing, only the limit, or only
the ban protects the calls. `limit` limits the address of the flood, and rejects or drops its excess. `ban` has
`ban_above_cps`, and the kernel drops the INVITEs of a banned address. Each variant runs three times, and the variants
take turns. In each run the flood must have at least 95 % of its rate, and the generator of the other calls must not be
too slow or lose messages. The table also shows the real rate of the flood, its cost for the server, and the losses at
the sockets. If the flood is larger than the number of calls that the processor can reject, the socket that all INVITEs
share overflows.
"""

import argparse
import threading
import time
from dataclasses import replace
from typing import Any

from tidegate_bench import load, sipp_load, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.flood import Flood, judge_rate
from tidegate_bench.load import Load, Outcome, judge_generator
from tidegate_bench.overload import Variant
from tidegate_bench.process import NS, Stage
from tidegate_bench.record import Record, Spread

LAW = Variant("pi", "arrival", "class")
FLOOD_CPS = 100_000
OTHERS_CPS = 200.0
FLOODER = "127.0.0.88"
OTHERS = "127.0.0.77"
# The flood begins a second before the calls, which are counted once it is steady.
LEAD_S = 1.0
WARM_UP_S = 2.0
KEPT_MIN = 0.95

LIMIT = f"""
[[overload.limit]]
from = "{FLOODER}"
rate_cps = 50
"""
UNSHARED = "[overload.sources]\nfair = false\n"
SILENT = replace(LAW, disposal="drop")
DEFAULT = Variant("tide", disposal="auto")
# In this variant the flood consists of emergency calls (RFC 5031).
EMERGENCY = "default, emergency"
# The law, and tables below it.
VARIANTS = {
    "off": (LAW, UNSHARED),
    "fair": (LAW, ""),
    "fair, drop": (SILENT, ""),
    "limit, reject": (LAW, UNSHARED + LIMIT),
    "limit, drop": (LAW, UNSHARED + LIMIT + 'then = "drop"\n'),
    "ban": (LAW, UNSHARED + "ban_above_cps = 5000\n"),
    "default": (DEFAULT, ""),
    EMERGENCY: (DEFAULT, ""),
    "default, unshared": (DEFAULT, UNSHARED),
    "default, limit": (DEFAULT, LIMIT),
}
# The generator of the other calls.
CALLERS = {"uac": load.offer, "sipp": sipp_load.offer}
# In these variants the flood costs the server so little that nearly all other calls must be set up in time.
CHEAP = ("limit, drop", "ban")
# Fewer calls are set up with the default, because buffers overflow until the kernel drops enough of the flood.
DEFAULT_KEPT_MIN = 0.7


def one(record: Record, round_: int, name: str, options: argparse.Namespace) -> tuple[dict[str, Any], Outcome]:
    """Runs one variant. Returns a row of the table, and the outcome of the other calls."""
    profile = options.profile
    seconds = LEAD_S + WARM_UP_S + options.seconds + 0.5
    with Stage() as stage:
        callee = tidegate.callee(stage, "uas", profile)
        law, tables = VARIANTS[name]
        edge = tidegate.start(stage, [callee.port], profile, queue_max=1024, tables=law.tables() + tables)
        uri = "urn:service:sos" if name == EMERGENCY else None
        flood = Flood(stage, edge.address, options.rate, seconds, profile, FLOODER, uri)
        time.sleep(LEAD_S)
        busy: list[int] = []
        # The CPU time of the server while the flood is steady. The calls need little beside it.
        clocks = [
            threading.Timer(at, lambda: busy.append(edge.process.cpu_ns()))
            for at in (WARM_UP_S, WARM_UP_S + options.seconds)
        ]
        for clock in clocks:
            clock.start()
        calls = Load(OTHERS_CPS, WARM_UP_S, options.seconds, round_)
        others = CALLERS[options.caller](stage, edge.process, edge.address, callee, calls, profile, host=OTHERS)
        for clock in clocks:
            clock.join()
        told = flood.finish(20)
        shown = edge.metrics()
        record.text(f"{round_}-{name.replace(', ', '-')}.metrics", shown.text)
        lasted_s = max(seconds, told["lasted_s"])
        sent_cps = told["invites"] / lasted_s
        server_cpu = (busy[1] - busy[0]) / NS / options.seconds
        reasons = {"by_law": "law", "by_share": "source_share", "by_limit": "source_limit"}
        filtered = shown.total("udp_filtered")
        row = {
            "round": round_,
            "variant": name,
            "others_cps": round(others.offered_cps, 1),
            "in_time": round(others.in_time, 4),
            "others_p99_ms": others.p99_ms,
            "others_rejected_cps": round(others.rejected_cps, 1),
            "flood_cps": round(sent_cps),
            "flood_behind_s": told["behind_s"],
            "flood_rejected": int(told["rejected"]),
            **{key: shown.total("work_rejected", reason=reason) for key, reason in reasons.items()},
            "banned": shown.total("messages_dropped", reason="banned") + filtered,
            "kernel": filtered,
            "server_cpu": round(server_cpu, 3),
            "server_us": round(1e6 * server_cpu / max(sent_cps, 1), 2),
            "server_drops": shown.total("udp_overflow"),
            "flood_cpu": round(told["cpu_s"] / lasted_s, 3),
            "flood_drops": int(told["socket_drops"] + told["unsent"]),
            "caller_cpu": round(others.usage.caller, 3),
            "caller_drops": others.usage.drops,
        }
        return row, others


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--rate", type=int, default=FLOOD_CPS, help="INVITEs/s of the flood (default %(default)s)")
        parser.add_argument("--seconds", type=float, default=5.0, help="measured time in s (default %(default)s)")
        parser.add_argument(
            "--caller",
            choices=tuple(CALLERS),
            default="uac",
            help="program that makes the calls of the other sources (default %(default)s)",
        )

    def run(self) -> Results:
        rows: list[dict[str, Any]] = []
        outcomes: list[Outcome] = []
        for round_ in self.rounds:
            for name in VARIANTS:
                row, others = one(self, round_, name, self.options)
                print(
                    f"round {round_}, {name:17}: {row['in_time']:7.1%} of the others in time; flood "
                    f"{row['flood_cps']:6}/s at {row['server_us']:5.1f} µs each, {row['server_drops']} "
                    "lost at full sockets",
                    flush=True,
                )
                rows.append(row)
                outcomes.append(others)
        self.rows("runs", rows)
        figures = ("in_time", "others_p99_ms", "flood_cps", "server_cpu", "server_us", "server_drops")
        for name in VARIANTS:
            runs = [row for row in rows if row["variant"] == name]
            table.show_spreads(
                runs, dict.fromkeys((*figures, "flood_cpu", "flood_drops", "caller_cpu", "caller_drops"), 3), name
            )

        def spread(name: str) -> Spread:
            return Spread.of([row["in_time"] for row in rows if row["variant"] == name])

        off = spread("off")
        for name in (name for name in VARIANTS if name not in ("off", "default, unshared")):
            self.expect(
                spread(name).median > off.median,
                f"with {name} {spread(name).median:.1%} of the other calls are in time, with off {off.median:.1%}",
            )
        for name in CHEAP:
            self.expect(
                spread(name).minimum >= KEPT_MIN,
                f"with {name} at least {spread(name).minimum:.1%} of the other calls in each run",
            )
        limited = spread("default, limit").minimum
        self.expect(limited >= DEFAULT_KEPT_MIN, f"with the default and a limit at least {limited:.1%} in each run")
        kept, alike = spread("default"), spread("default, unshared")
        self.expect(
            kept.minimum >= DEFAULT_KEPT_MIN, f"with the default at least {kept.minimum:.1%} of them in each run"
        )
        emergency = spread(EMERGENCY).minimum
        self.expect(emergency >= DEFAULT_KEPT_MIN, f"with a flood of emergency calls at least {emergency:.1%}")
        self.expect(kept.minimum > alike.maximum, f"without fair shares at most {alike.maximum:.1%}")
        effects = {"fair": "by_share", "limit, reject": "by_limit", "limit, drop": "by_limit", "ban": "banned"}
        for name, column in effects.items():
            least = min(row[column] for row in rows if row["variant"] == name)
            self.expect(least > 0, f"{name} takes effect: it sheds at least {least} messages in each run")
        judge_rate(self, [row["flood_cps"] for row in rows], self.options.rate)
        # The callee also gets the calls of the flood that Tidegate admits, and may have no room for their messages.
        judge_generator(self, [replace(one, usage=replace(one.usage, drops=0)) for one in outcomes])
        return {"runs": rows}
