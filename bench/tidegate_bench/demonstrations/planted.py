"""Faults planted in the source, one at a time: the intended checker finds each of them

Every patch in crates/lab/tests/planted breaks one thing as a programmer might. It names the checker that must find the
fault, and says whether worlds with streams are needed. Each patch is applied in a copy of the files of this checkout,
and built. Then `tidegate lab swarm` tries seed after seed from 1. The output shows the number of seeds and the finding.
With names of faults as arguments, only these are planted.
"""

import argparse
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import ROOT

PATCHES = ROOT / "crates/lab/tests/planted"
SEEDS_MAX = 1000
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
# It is kept, so that the dependencies are built only once.
SCRATCH = TARGET / "planted"


def git(*arguments: object, at: Path = ROOT) -> None:
    subprocess.run(["git", "-C", str(at), *map(str, arguments)], check=True, capture_output=True)


def checkout() -> Path:
    """Copies those files of this checkout that git knows, as they are now. Returns the folder of the copy."""
    source = SCRATCH / "source"
    shutil.rmtree(source, ignore_errors=True)
    known = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True).stdout
    for name in known.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    git("init", "--quiet", at=source)
    return source


def build(source: Path) -> Path:
    command = ["cargo", "build", "--quiet", "--package", "tidegate"]
    target = SCRATCH / "target"
    done = subprocess.run(
        command,
        cwd=source,
        env=os.environ | {"CARGO_TARGET_DIR": str(target), "RUSTFLAGS": "-Awarnings"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return target / "debug/tidegate"


def hunt(tidegate: Path, checker: str, has_streams: bool) -> dict[str, Any]:
    """Tries seeds until this checker finds something. Returns the first finding of each checker, by its name."""
    streams = ["--streams"] if has_streams else []
    seed, found = 1, dict[str, Any]()
    while seed <= SEEDS_MAX:
        seeds = ("--from", seed, "--seeds", SEEDS_MAX - seed + 1, "--first", "--jobs", 1, "--tries", 1)
        failures = program.swarm(*seeds, "--out", SCRATCH / "worlds", *streams, program=tidegate)["failures"]
        if not failures:
            break
        seed = failures[0]["seed"]
        for finding in failures[0]["findings"]:
            found.setdefault(finding["checker"], {"seed": seed, "what": finding["what"]})
        if checker in found:
            break
        seed += 1
    return found


class Show(Demonstration):
    ROUNDS = None

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        # Not `choices`, because argparse applies them to the empty list too.
        parser.add_argument("faults", nargs="*", metavar="FAULT", help="names of the faults to plant (default: all)")

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        known = {patch.stem for patch in PATCHES.glob("*.patch")}
        if unknown := sorted(set(options.faults) - known):
            raise SystemExit(f"no fault {', '.join(unknown)}: there are {', '.join(sorted(known))}")

    def run(self) -> Results:
        source = checkout()
        rows = []
        print(f"  {'fault':<34}{'to be found by':<16}{'seeds':>6}  finding")
        wanted = set(self.options.faults)
        for patch in sorted(PATCHES.glob("*.patch")):
            if wanted and patch.stem not in wanted:
                continue
            checker, what, worlds = (line.strip() for line in patch.read_text().splitlines()[:3])
            checker = checker.removeprefix("Checker: ")
            git("apply", patch, at=source)
            found = hunt(build(source), checker, worlds == "In worlds with streams.")
            git("apply", "--reverse", patch, at=source)
            by = found.get(checker)
            seeds = by["seed"] if by else None
            others = ", ".join(sorted(set(found) - {checker})) or "none"
            print(f"  {patch.stem:<34}{checker:<16}{seeds or 'never':>6}  {by['what'] if by else ''}", flush=True)
            rows.append({"fault": patch.stem, "what": what, "checker": checker, "seeds": seeds, "others": others})
            self.expect(by is not None, f"{checker} finds it: {what} (others that did: {others})")
        self.rows("planted", rows)
        self.expect(len(rows) > 0, f"{len(rows)} faults were planted")
        return {"planted": rows}
