"""A million calls in progress: what each holds in memory, and what a request within one costs

The very proxy, in one process with those who talk to it and without sockets: so many calls are set
up and acknowledged, and their transactions are over. Memory is what the allocator has given out for
each, and how much the process has grown. Then requests come within calls drawn from all of them.
"""

import argparse

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import Spread

MODES = ("transaction", "stateless")
FEW = 1_000
# What the design allows for each balanced call.
CALL_MAX_BYTES = 1024
# The quickest of five batches is compared. Of a million calls each look-up misses the caches of the processor, of a
# thousand none does.
DEARER_MAX_NS = 3_000


class Show(Demonstration):
    PROFILE = "release"
    ROUNDS = None

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--calls", type=int, default=1_000_000, help="(default %(default)s)")

    def run(self) -> Results:
        runs = []
        print(
            f"  {'':<14}{'calls':>10}{'B a call':>10}{'resident':>10}{'ns a request: min':>20}{'median':>11}{'max':>11}"
        )
        for mode in MODES:
            least = {}
            for calls in (FEW, self.options.calls):
                run = program.example("million", mode, calls, profile=self.profile)
                runs.append(run)
                times = Spread.of(run["request_ns"])
                least[calls] = times.minimum
                print(
                    f"  {mode:<14}{calls:>10}{run['bytes_per_call']:>10.0f}"
                    f"{run['resident_bytes_per_call']:>10.0f}{times.text(0):>42}"
                )
            self.expect(
                runs[-1]["bytes_per_call"] <= CALL_MAX_BYTES,
                f"{mode}: a call holds {runs[-1]['bytes_per_call']:.0f} B of {CALL_MAX_BYTES}",
            )
            dearer = least[self.options.calls] - least[FEW]
            self.expect(
                dearer <= DEARER_MAX_NS,
                f"{mode}: a request costs {dearer:.0f} ns more among {self.options.calls:,} calls than among {FEW:,}",
            )
        self.rows("runs", [run | {"request_ns": Spread.of(run["request_ns"]).median} for run in runs])
        return {"runs": runs}
