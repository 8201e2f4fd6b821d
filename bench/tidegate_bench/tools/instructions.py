"""Counts with Valgrind the instructions that Tidegate needs for a message.

The counts are those of the operations of the SIP library on a 500-byte INVITE, of each message of a call in the proxy
alone, in both modes, of rejections, of the selection of a back end, and of a reload. They do not depend on other load
of the machine, and hardly on the machine.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from tidegate_bench.record import ROOT, Record

# Crates with a benchmark `instructions`.
PACKAGES = ("tidegate-sip", "tidegate-proxy", "tidegate-balance")
# Number of calls whose timers are counted together (crates/proxy/benches/instructions.rs).
CALLS = 50


@dataclass(frozen=True)
class Operation:
    """An operation whose count is the sum of some benchmarks."""

    title: str
    benchmarks: tuple[str, ...]
    most: int
    """The highest count with which the check passes."""
    target: int | None = None
    """The count to reach later, if it is lower than `most`."""


def call(mode: str) -> tuple[str, ...]:
    messages = ("invite", "180", "200_invite", "ack", "bye", "200_bye")
    return tuple(f"message {mode}_{message}" for message in messages)


OPERATIONS = (
    Operation("scan an INVITE", ("sip scan_invite",), 1_800),
    Operation("scan a 180", ("sip scan_180",), 1_850),
    Operation("glance at an INVITE", ("sip glance_invite",), 250),
    Operation("outline an INVITE", ("sip outline_invite",), 3_350),
    Operation("reject an INVITE", ("sip reject_invite",), 4_650),
    Operation("scan the ACK of a rejection", ("sip scan_ack_of_rejection",), 1_250),
    Operation("parse an INVITE", ("sip parse_invite",), 2_200),
    Operation("parse, check and read it", ("sip parse_check_read_invite",), 6_200),
    Operation("parse and forward it", ("sip parse_forward_invite",), 4_350),
    Operation("parse it and reply 503", ("sip parse_reply_503",), 5_650),
    *(
        Operation(f"balance: {policy} among {backends}", (f"{policy} of_{backends}",), most)
        for policy, few, many in (
            ("rr", 1_100, 80_000),
            ("hash", 750, 40_000),
            ("cjsq", 700, 33_000),
            ("tlwl", 700, 33_000),
            ("p2c", 660, 800),
            ("peak_ewma", 900, 1_100),
            ("rendezvous", 1_450, 98_000),
        )
        for backends, most in ((10, few), (1000, many))
    ),
    Operation("proxy: reject an INVITE", ("message reject_invite",), 8_850),
    # A decision is remembered at a place that a hash of the request determines. So these counts change by up to 200 if
    # the hash changes.
    Operation("proxy: reject it before ten full back ends", ("message full_invite",), 11_800),
    Operation("proxy: reject it for its source's share", ("message share_invite",), 9_900),
    Operation("proxy: drop one beyond a limit", ("message limit_invite",), 4_950, target=4_800),
    Operation("proxy: drop one of a banned source", ("message banned_invite",), 770),
    *(
        Operation(f"proxy, {mode}: {title}", (f"message {mode}_{name}",), most, target)
        for mode, requests in {
            "stateless": ((22_250, 20_800), (14_400, 13_300)),
            "transaction": ((26_750, 25_100), (16_600, 15_500)),
        }.items()
        for title, name, (most, target) in (
            ("forward an INVITE", "invite", requests[0]),
            ("forward its 180", "180", (8_600, 8_000)),
            ("forward its 200", "200_invite", (8_850, 8_300)),
            ("forward an ACK", "ack", requests[1]),
            ("forward a BYE", "bye", requests[1]),
            ("forward its 200", "200_bye", (8_100, 7_600)),
        )
    ),
    *(
        Operation(f"reload {title} back ends", (f"reload {name}",), most)
        for title, name, most in (
            ("1,000", "of_1000", 10_000_000),
            ("10,000", "of_10000", 105_000_000),
            ("100 times 100", "of_10000_in_100", 105_000_000),
        )
    ),
    Operation("proxy, stateless: a call", call("stateless"), 74_700, target=69_500),
    Operation("proxy, transaction: a call", call("transaction"), 82_900, target=65_000),
)


def count(record: Record) -> dict[str, int]:
    """Runs the benchmarks. Returns the instructions by `function id`."""
    packages = [word for package in PACKAGES for word in ("--package", package)]
    command = ["cargo", "bench", "--quiet", *packages, "--bench", "instructions"]
    command += ["--", "--output-format=json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    (record.directory / "gungraun.json").write_text(done.stdout)
    if done.returncode:
        sys.exit("the benchmarks did not run; `scripts/setup bench` installs what they need")
    summaries = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    totals = {f"{one['function_name']} {one['id']}": one["profiles"][0]["data"]["total"] for one in summaries}
    return {name: total["metrics"]["Ir"]["values"]["new"] for name, total in totals.items()}


def main(arguments: list[str]) -> int:
    record = Record("bench", "instructions")
    counts = count(record)
    rows: list[dict[str, Any]] = []
    print(f"{'':42}{'instructions':>12}{'at most':>12}{'target':>8}")
    for operation in OPERATIONS:
        taken = sum(counts[benchmark] for benchmark in operation.benchmarks)
        target = operation.target or operation.most
        missed = "" if taken <= target else f"  {taken / target - 1:.0%} above the target"
        aimed = f"{operation.target:8,}" if operation.target else " " * 8
        print(f"  {operation.title:40}{taken:12,}{operation.most:12,}{aimed}{missed}")
        rows.append({"operation": operation.title, "instructions": taken, "most": operation.most, "target": target})
    for mode in ("stateless", "transaction"):
        each = counts[f"timers {mode}"] / CALLS
        title = f"proxy, {mode}: timers of a call"
        print(f"  {title:40}{each:12,.0f}")
        rows.append({"operation": title, "instructions": round(each), "most": "", "target": ""})
    record.rows("instructions", rows)
    above = [row["operation"] for row in rows if row["most"] and row["instructions"] > row["most"]]
    record.expect(not above, f"more instructions than allowed: {', '.join(above) or 'none'}")
    return record.finish(operations=rows)
