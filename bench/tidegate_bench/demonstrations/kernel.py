"""The CPU time of a datagram that the kernel drops, and exact counts of all datagrams

examples/gate alternately sends datagrams to itself and reads them, in one thread, and prints the CPU time of sending
and of reading. On the loopback interface, sending includes the kernel's work on a datagram until it is in a buffer or
is dropped. Between machines the receiver pays for this work. A datagram that the kernel drops is neither read nor
answered. For every way to dispose of datagrams, sent = received + filtered + overflow must hold exactly. Uses release
builds.
"""

import argparse
from dataclasses import asdict, dataclass

from tidegate_bench import program, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import Spread

# The CPU time that remains for reading: two readings of the clock for 64 datagrams.
READER_NS_MAX = 50


@dataclass(frozen=True)
class Run:
    """One way to dispose of datagrams, in one round."""

    round: int
    way: str
    sent: int
    received: int
    filtered: int
    overflow: int
    sender_ns: int
    reader_ns: int

    def total_ns(self) -> int:
        """CPU time of a datagram, for sending and reading together."""
        return self.sender_ns + self.reader_ns


def compare(round_: int, datagrams: int, profile: str) -> list[Run]:
    """Runs every way once."""
    printed = program.output(tidegate.built("examples/gate", profile), "--datagrams", datagrams)
    _, *lines = printed.splitlines()
    runs = []
    for line in lines:
        way, *numbers = line.split()
        runs.append(Run(round_, way, *map(int, numbers)))
        print(f"{round_:5} {way:14}" + "".join(f"{int(n):10,}" for n in numbers), flush=True)
    return runs


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--datagrams",
            type=int,
            default=500_000,
            help="number of datagrams for each way to drop them (default %(default)s)",
        )

    def run(self) -> Results:
        print("round way                 sent  received  filtered  overflow sender ns reader ns")
        runs = [run for round_ in self.rounds for run in compare(round_, self.options.datagrams, self.profile)]
        self.rows("runs", [asdict(run) for run in runs])
        ways = list(dict.fromkeys(run.way for run in runs))
        totals = {way: [run.total_ns() for run in runs if run.way == way] for way in ways}
        print("\nsending and reading, ns each      min     median        max")
        for way, spent in totals.items():
            print(f"  {way:26}{Spread.of(spent).text(0)}")
        kernel = totals["kernel-all"]
        saved = {
            way: [instead - ns for instead, ns in zip(totals[way], kernel, strict=True)] for way in ("read", "answer")
        }
        print("saved by the kernel, ns a datagram")
        for way, spent in saved.items():
            print(f"  instead of {way:15}{Spread.of(spent).text(0)}")
        print()
        lost = sum(run.sent - run.received - run.filtered - run.overflow for run in runs)
        self.expect(
            all(run.sent == run.received + run.filtered + run.overflow for run in runs),
            f"sent = received + filtered + overflow in {len(runs)} runs, {lost} datagrams apart",
        )
        shed = [run for run in runs if run.way in ("kernel-all", "kernel-banned")]
        self.expect(
            all(run.filtered == run.sent and run.reader_ns <= READER_NS_MAX for run in shed),
            "datagrams that the kernel has to drop are never read",
        )
        self.expect(
            all(run.filtered == 0 for run in runs if not run.way.startswith("kernel")),
            "datagrams lost at a full socket do not count as dropped on purpose",
        )
        for way, spent in saved.items():
            median = Spread.of(spent).median
            self.expect(median > 0, f"a drop in the kernel saves {median:.0f} ns, compared with {way}")
        return {"runs": [asdict(run) for run in runs], "saved": saved}
