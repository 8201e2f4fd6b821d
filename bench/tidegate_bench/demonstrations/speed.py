"""The simulator makes 300,000 deliveries per second of CPU time through the real proxy and agents

A delivery is one message at one node. The real proxy runs with its transactions, callers, callees with every outcome,
and links of 1 ms that lose one packet in a thousand, on one thread. The calls come at 10 to 10,000 calls/s through one
proxy, and at 1,000 calls/s among up to 100 nodes. A third of these are callers, a third are proxies, and every proxy
sends to all remaining nodes. Each set-up runs without a tap, and with one that hashes every packet. Then instructions
are counted to show in which part the time is spent.

300,000 is the target for four nodes at up to 1,000 calls/s. With a higher load or a larger network more state is alive
at a time, and soon more than fits in a cache. So only half of the speed must be left at a thousand times the load, and
at 25 times the nodes. If that is below the target, the table says so.

The conditions are on the fastest of five rounds. A round always does the same work on one thread, and time that it
waits for a processor does not count. On a shared machine, other programs can make a round slower by their use of
caches, memory and frequency, but never faster. The medians are shown too.
"""

import re
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import Record, Spread
from tidegate_bench.tidegate import built

TARGET = 300_000
# The highest rate in calls/s among four nodes for which the target applies.
TARGET_CPS = 1000
# The least part of the speed that must be left at a thousand times the load, and at 25 times the nodes.
LEFT_MIN = 0.5
CALLS = 100_000
ROUNDS = 5
RATES_CPS = (10, 100, 1000, 10_000)
NODES = (4, 10, 30, 100)
# The load for counting instructions. Ten seconds of 1,000 calls/s take half a minute under callgrind.
PROFILED = (4, 1000, 10, "trace")

# The functions of nodes and taps that the network calls, by part of the simulator.
ENTRIES = {
    "proxy": "tidegate_proxy::core::contract::<impl tidegate_world::core::Core for tidegate_proxy::core::Proxy>::",
    "callers": "<tidegate_agent::caller::Caller as tidegate_world::core::Core>::",
    "called": "<tidegate_agent::answerer::Answerer as tidegate_world::core::Core>::",
    "trace": "<tidegate_sim::tap::Trace as tidegate_sim::tap::Tap>::",
}
RUN = "tidegate_sim::network::Network<N,T>::run_until"


@dataclass(frozen=True)
class Setup:
    """The parameters of a simulation."""

    nodes: int
    rate_cps: int
    tap: str

    def run(self) -> dict[str, Any]:
        return program.example("speed", self.nodes, self.rate_cps, CALLS // self.rate_cps, self.tap)


def table(runs: dict[Setup, list[dict[str, Any]]]) -> None:
    print("\n nodes  calls/s  tap     deliveries a CPU second: min  median  max   CPU s  MiB  target")
    for setup, rounds in runs.items():
        speed = Spread.of([run["deliveries_per_cpu_s"] for run in rounds])
        cpu_s = statistics.median(run["cpu_s"] for run in rounds)
        memory = max(run["rss_peak_kib"] for run in rounds) / 1024
        print(
            f"{setup.nodes:6}{setup.rate_cps:9}  {setup.tap:<8}"
            f"{speed.text(0):>32}{cpu_s:8.1f}{memory:5.0f}"
            f"  {'reached' if speed.maximum >= TARGET else 'below'}"
        )


def profile(record: Record) -> dict[str, float]:
    """Returns the instructions of a delivery, for each part of the simulator."""
    with tempfile.TemporaryDirectory() as scratch:
        counts = Path(scratch) / "callgrind.out"
        under = ("valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={counts}")
        run = program.result(*under, built("examples/speed", "release"), *PROFILED)
        command = ["callgrind_annotate", "--inclusive=yes", "--auto=no", "--threshold=100"]
        command += [str(counts)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    (record.directory / "callgrind.txt").write_text(done.stdout)
    # A function has a line for each file from which something was inlined. The line with the largest number is its own
    # line, which includes its calls.
    inclusive: dict[str, int] = {}
    for line in done.stdout.splitlines():
        if found := re.match(r"\s*([\d,]+) \(.*?\)\s+[^:]*:(.*?)( \[.*\])?$", line):
            name, count = found[2], int(found[1].replace(",", ""))
            inclusive[name] = max(count, inclusive.get(name, 0))
    shares = {
        who: sum(count for name, count in inclusive.items() if name.startswith(entry)) / run["deliveries"]
        for who, entry in ENTRIES.items()
    }
    total = inclusive[RUN] / run["deliveries"]
    shares["network"] = total - sum(shares.values())
    print(f"\ninstructions of each of {run['deliveries']} deliveries: {total:.0f}")
    for who, count in shares.items():
        print(f"  {who:<10}{count:8.0f}{100 * count / total:7.1f} %")
    record.expect(all(count > 0 for count in shares.values()), "each of these parts was seen in the profile")
    return shares


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        pairs = dict.fromkeys([(4, rate) for rate in RATES_CPS] + [(nodes, 1000) for nodes in NODES])
        setups = [Setup(*pair, tap) for pair in pairs for tap in ("none", "trace")]
        runs: dict[Setup, list[dict[str, Any]]] = {setup: [] for setup in setups}
        for _ in range(ROUNDS):
            for setup in setups:
                runs[setup].append(setup.run())
        table(runs)
        self.rows("runs", (run for rounds in runs.values() for run in rounds))
        print()
        speeds = {
            (setup.nodes, setup.rate_cps): Spread.of([run["deliveries_per_cpu_s"] for run in rounds])
            for setup, rounds in runs.items()
            if setup.tap == "none"
        }
        few = NODES[0]
        for rate in (rate for rate in RATES_CPS if rate <= TARGET_CPS):
            speed = speeds[few, rate]
            self.expect(
                speed.maximum >= TARGET,
                f"{few} nodes, {rate} calls/s: {speed.maximum:,.0f} deliveries a CPU second"
                f" (median {speed.median:,.0f}), {TARGET:,} wanted",
            )
        for one, other in (((few, RATES_CPS[0]), (few, RATES_CPS[-1])), ((few, TARGET_CPS), (NODES[-1], TARGET_CPS))):
            left = speeds[other].maximum / speeds[one].maximum
            self.expect(
                left >= LEFT_MIN,
                f"{other[0]} nodes, {other[1]} calls/s: {speeds[other].maximum:,.0f} (median"
                f" {speeds[other].median:,.0f}), {left:.2f} of the speed with {one[0]} nodes and {one[1]} calls/s,"
                f" {LEFT_MIN} wanted",
            )
        self.expect(
            all(len({run["trace"] for run in rounds}) == 1 for rounds in runs.values()),
            f"one seed gives one trace in {ROUNDS} runs",
        )
        shares = profile(self)
        return {"runs": [run for rounds in runs.values() for run in rounds], "instructions": shares}
