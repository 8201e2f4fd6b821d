"""Tidegate and Wireshark read 100,000 messages alike, or the difference has a known reason

`make test` runs this test on one corpus (crates/sip/tests/differential). Here it runs on others: the torture messages
of RFC 4475 and RFC 5118, generated messages and damaged ones, read by tshark and by Tidegate. Request or response,
method, Request-URI, status, Call-ID, CSeq, all Vias, tags, Max-Forwards, Content-Length and the number of Via and
Route lines must be the same, or one of the reasons in excuses.rs must explain the difference.
"""

import argparse
import os
import re
import subprocess

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import ROOT, Record

TORTURE = 61
COUNT = re.compile(r"^ *(\d+)  (.+)$", re.MULTILINE)


def one_seed(record: Record, seed: int, messages: int) -> dict[str, int]:
    command = ["cargo", "test", "-q", "-p", "tidegate-sip", "--test", "differential"]
    environment = {**os.environ, "SEED": str(seed), "MESSAGES": str(messages)}
    words = [*command, "--", "--nocapture"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    record.text(f"{seed}.txt", said)
    alike, _, apart = said.partition("permitted differences:")
    counts = [sum(int(count) for count, _ in COUNT.findall(text)) for text in (alike, apart)]
    record.expect(
        done.returncode == 0 and counts[0] > 0,
        f"seed {seed}: {TORTURE + 2 * messages} messages, {counts[0]} values alike, "
        f"{counts[1]} apart for a known reason",
    )
    return {"seed": seed, "messages": TORTURE + 2 * messages, "alike": counts[0], "apart": counts[1]}


class Show(Demonstration):
    ROUNDS = 5

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--messages",
            type=int,
            default=10_000,
            help="number of generated messages for each seed, and of damaged ones (default %(default)s)",
        )

    def run(self) -> Results:
        reader, *_ = program.output("tshark", "--version").splitlines()
        print(reader)
        rows = [one_seed(self, seed, self.options.messages) for seed in self.rounds]
        self.rows("seeds", rows)
        return {"reader": reader, "seeds": rows}
