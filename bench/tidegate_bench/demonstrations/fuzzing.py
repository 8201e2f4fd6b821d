"""Coverage-guided fuzzing of the grammar and of the whole proxy for MINUTES=3 finds no crash

Five targets (docs/fuzzing.md) run one after the other on one core: `scan`, `message`, `uri`, `framer` and `endpoint`,
which has half of the time. They start with the torture messages of RFC 4475 and RFC 5118 and with the findings of
earlier runs (fuzz/corpus). The demonstration needs a nightly compiler and cargo-fuzz, and reports if one is missing.
"""

import argparse
import os
import re
import subprocess
import sys
from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import ROOT, Record

FUZZ = ROOT / "fuzz"
MESSAGES = ROOT / "crates/sip/tests"
# The share of the time of each target.
SHARES = {"scan": 1 / 8, "message": 1 / 8, "uri": 1 / 8, "framer": 1 / 8, "endpoint": 1 / 2}
SEED = 1
# Setups of the proxy in crates/proxy/tests/behaviour/drive: transactions, none, forking, tiny
# tables, a law, one queue.
SETUPS = (0, 1, 2, 4, 8, 16)
# An untrusted source in these setups, and one that may send to other addresses.
SOURCES = (0, 6)
DATAGRAM_MAX = 4096
# The cores have no unsafe code, so AddressSanitizer would find nothing.
WHERE = ("--fuzz-dir", str(FUZZ), "-s", "none")
NEEDED = """\
show-fuzzing: needs a nightly compiler and cargo-fuzz:
    rustup toolchain install nightly --profile minimal
    cargo install cargo-fuzz --locked"""

DONE = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", re.MULTILINE)


def seeds() -> None:
    """Writes the torture messages into each corpus, in the input format of its target."""
    for target in SHARES:
        (FUZZ / "corpus" / target).mkdir(parents=True, exist_ok=True)
    for file in sorted(MESSAGES.glob("rfc*/*.dat")):
        data = file.read_bytes()
        for target in ("scan", "message"):
            (FUZZ / "corpus" / target / file.stem).write_bytes(data)
        # Usual limits, reads of growing size.
        (FUZZ / "corpus/framer" / file.stem).write_bytes(bytes([0, 7, 3]) + data + data)
        for number, line in enumerate(data.split(b"\r\n\r\n")[0].split(b"\r\n")):
            value = line.partition(b":")[2].strip() or line
            (FUZZ / "corpus/uri" / f"{file.stem}-{number}").write_bytes(value)
        for setup in SETUPS:
            for source in SOURCES:
                # Operation 0: a datagram as it is, its length in two bytes.
                begin = bytes([setup, 0, source, len(data) >> 8, len(data) & 255])
                name = f"{file.stem}-{setup}-{source}"
                (FUZZ / "corpus/endpoint" / name).write_bytes(begin + data)


def cargo_fuzz(*arguments: str) -> list[str]:
    return ["cargo", "+nightly", "fuzz", *arguments]


def one_target(record: Record, target: str, seconds: int) -> dict[str, Any]:
    corpus, log = FUZZ / "corpus" / target, record.directory / f"{target}.log"
    artifacts = FUZZ / "artifacts" / target
    known = set(artifacts.glob("*"))
    options = [f"-seed={SEED}", f"-max_total_time={seconds}", f"-max_len={DATAGRAM_MAX}"]
    options += ["-timeout=10", "-rss_limit_mb=2048", f"-dict={FUZZ / 'sip.dict'}"]
    command = cargo_fuzz("run", *WHERE, target, str(corpus), "--", *options, "-print_final_stats=1")
    with log.open("wb") as sink:
        status = subprocess.run(command, cwd=FUZZ, stdout=sink, stderr=subprocess.STDOUT, check=False).returncode
    found = DONE.findall(log.read_text(errors="replace"))
    executions, cov, ft, files = (int(number) for number in found[-1]) if found else (0, 0, 0, 0)
    crashes = sorted(set(artifacts.glob("*")) - known)
    record.keep(*crashes, prefix=f"{target}-")
    record.expect(
        status == 0 and not crashes and executions > 0,
        f"{target:9} {seconds:5} s {executions:10,} executions  cov {cov:5}  ft {ft:6}  "
        f"corpus {files:5}  crashes {len(crashes)}",
    )
    for crash in crashes:
        print(f"        {crash.relative_to(ROOT)}; docs/fuzzing.md says what to do with it")
    row = {"target": target, "seconds": seconds, "executions": executions, "cov": cov, "ft": ft}
    return row | {"corpus": files, "crashes": len(crashes)}


class Show(Demonstration):
    ROUNDS = None

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        asked = subprocess.run(cargo_fuzz("--version"), cwd=FUZZ, capture_output=True, check=False)
        if asked.returncode:
            print(NEEDED, file=sys.stderr)
            sys.exit(2)

    def run(self) -> Results:
        minutes = float(os.environ.get("MINUTES", "3"))
        seeds()
        os.nice(19)
        print(f"seed {SEED}, {minutes:g} minutes")
        program.output(*cargo_fuzz("build", *WHERE))
        rows = [one_target(self, target, max(1, round(60 * minutes * share))) for target, share in SHARES.items()]
        self.rows("targets", rows)
        return {"seed": SEED, "minutes": minutes, "targets": rows}
