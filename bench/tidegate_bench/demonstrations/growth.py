"""A million calls set up in one shard: the longest turn of the proxy, and the bytes of each call

The real proxy runs without sockets (`crates/proxy/examples/growth.rs`), in both modes, with ringing calls, and with
answered and rejected calls whose transactions are still kept. A pass is the handling of one message, or one
`handle_timeout`. There are three rounds, each with other keys and other times between the calls.

The time of a pass is CPU time of its thread. The wall time is printed too, but not judged. The condition is on the
round whose longest pass is shortest. Tables grow at fixed counts, so a stall that they cause occurs in each round at
the same number of calls. Time that a virtual machine or the kernel takes from a thread counts as its CPU time too, but
does not occur in each round at the same place. The longest pass of all rounds is printed as well, and result.json has
the ten longest passes of each round with the number of the call.

When the transactions of the answered calls have ended, a BYE arrives in each of 10,000 calls. Its median time is
compared with that among a thousand calls: with a million calls each look-up misses the caches of the processor.

This test must find the fault of an earlier table. At commit 416564e, with this example copied there and glibc's
allocator, INVITEs stall if their number is 7/8 of a power of two (the index: number 917,504 takes 124 to 158 ms) or a
power of two (the slots: number 524,288 takes 294 to 557 ms). It also finds the pauses that huge pages cause
(docs/decisions/0043-mimalloc-allocates.md).

The allocator returns no memory to the kernel here. Half a minute of the proxy's time takes a second, so it would
return the memory of a million transactions at once, in 20 to 30 ms.
"""

import argparse
import os
from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import Spread
from tidegate_bench.tidegate import built

# Half of the longest time that may pass between two turns of a shard.
PASS_MAX_US = 1_000
# The limit of each mode and stage. A ringing call with transactions keeps its INVITE and its last response, which take
# about half of it. A rejected one keeps the same as an answered one, and 36 bytes to repeat the ACK.
BYTES_MAX = {
    ("stateless", "live"): 380,
    ("stateless", "answered"): 285,
    ("stateless", "rejected"): 285,
    ("transaction", "live"): 1_900,
    ("transaction", "answered"): 670,
    ("transaction", "rejected"): 710,
}
FEW = 1_000
DEARER_MAX_US = 3.0
PARTS = ("messages", "timers", "settling")


def longest_us(run: dict[str, Any], clock: str, which: str = "max") -> float:
    return max(float(run[part][clock][which]) for part in PARTS)


def request_us(runs: list[dict[str, Any]]) -> Spread:
    return Spread.of([float(run["in_dialog"]["cpu_us"]["median"]) for run in runs])


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--calls", type=int, default=1_000_000, help="number of calls in the tables (default %(default)s)"
        )
        parser.add_argument(
            "--program", help="path of the program `growth` (an example of a crate), if it was built elsewhere"
        )

    def run(self) -> Results:
        example = self.options.program or built("examples/growth", self.profile)
        os.environ["MIMALLOC_PURGE_DELAY"] = "-1"
        runs: list[dict[str, Any]] = []
        rows = []
        print(
            f"  {'longest pass, µs of CPU time:':<36}{'min':>7}{'median':>11}{'max':>11}"
            f"{'p99.99':>10}{'wall max':>11}{'B a call':>10}"
        )
        for (mode, stage), bytes_max in BYTES_MAX.items():
            rounds, few = (
                [
                    {"mode": mode, "stage": stage, "seed": seed, **program.result(example, mode, stage, calls, seed)}
                    for seed in self.rounds
                ]
                for calls in (self.options.calls, FEW)
            )
            runs += rounds + few
            passes = Spread.of([longest_us(run, "cpu_us") for run in rounds])
            usual = max(float(run["messages"]["cpu_us"]["p9999"]) for run in rounds)
            wall = max(longest_us(run, "wall_us") for run in rounds)
            held = max(float(run["bytes_per_call"]) for run in rounds)
            name = f"{mode}, {stage}"
            print(f"  {name:<34}{passes.text(0)}{usual:>10.0f}{wall:>11.0f}{held:>10.0f}")
            self.expect(
                passes.minimum <= PASS_MAX_US,
                f"{name}: the longest pass takes {passes.minimum:.0f} µs, allowed are {PASS_MAX_US:,}",
            )
            self.expect(held <= bytes_max, f"{name}: a call takes {held:.0f} B, allowed are {bytes_max:,}")
            if stage == "answered":
                dearer = request_us(rounds).median - request_us(few).median
                self.expect(
                    dearer <= DEARER_MAX_US,
                    f"{name}: an in-dialog request takes {dearer:.1f} µs more than among {FEW:,} calls",
                )
            rows.append(
                {
                    "mode": mode,
                    "stage": stage,
                    "longest_cpu_us_min": passes.minimum,
                    "longest_cpu_us_median": passes.median,
                    "longest_cpu_us_max": passes.maximum,
                    "p9999_cpu_us": usual,
                    "longest_wall_us": wall,
                    "bytes_per_call": held,
                }
            )
        self.rows("growth", rows)
        return {"runs": runs}
