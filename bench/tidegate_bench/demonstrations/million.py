"""A million calls in progress: the memory of each call, and the cost of an in-dialog request

The real proxy runs in one process with its peers, without sockets. A million calls are set up and acknowledged, and
their transactions are over. Memory is measured as the bytes that the allocator has given out for each call, and as the
growth of the process. Then requests arrive within randomly chosen calls.
"""

import argparse

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import Spread

MODES = ("transaction", "stateless")
FEW = 1_000
# Bytes that the design allows for each balanced call.
CALL_MAX_BYTES = 1024
# The fastest of five batches is compared. With a million calls each look-up misses the caches of the processor, and
# with a thousand calls none does.
DEARER_MAX_NS = 3_000


class Show(Demonstration):
    PROFILE = "release"
    ROUNDS = None

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--calls", type=int, default=1_000_000, help="number of calls in the call table (default %(default)s)"
        )

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
                f"{mode}: a call holds {runs[-1]['bytes_per_call']:.0f} B, allowed are {CALL_MAX_BYTES}",
            )
            dearer = least[self.options.calls] - least[FEW]
            self.expect(
                dearer <= DEARER_MAX_NS,
                f"{mode}: a request costs {dearer:.0f} ns more among {self.options.calls:,} calls than among {FEW:,}",
            )
        self.rows("runs", [run | {"request_ns": Spread.of(run["request_ns"]).median} for run in runs])
        return {"runs": runs}
