"""Records runs with one version of Tidegate, replays them with another, and compares the bytes

    scripts/replay-across OLD NEW [--rounds N] [--case TEXT]

OLD and NEW are programs or commits. A commit is built in a work tree below out/across, which is removed at the end. Use
this for changes that must not change behaviour. OLD runs with --record under calls that succeed, fail, are cancelled
and are rejected, with and without transactions, and while a back end dies. Then `tidegate replay` of NEW gives the
recorded inputs to its own proxy, and compares the packets and their times. If they differ, both versions write their
packets as text, and the first lines that differ are shown. The calls come from the Tidegate that is built in this
checkout.
"""

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tidegate_bench import tidegate
from tidegate_bench.load import Load, offer
from tidegate_bench.overload import Scenario
from tidegate_bench.process import Stage
from tidegate_bench.record import ROOT, Record
from tidegate_bench.replay import replay

ACROSS = ROOT / "out" / "across"
COSTS = Scenario.read().costs
OVERLOAD = '\n[overload]\nlaw = "{}"\n' + COSTS.tables()
HEALTH = '[pool.health]\nprobe = "options"\ninterval_s = 1\ntimeout_ms = 500\n'
MIXED = [
    "--ring",
    "exp:100",
    "--outcomes",
    "answer=70,busy=10,ring=10,503=5,silent=5",
    "--hang-up",
    "0.3",
    "--hold",
    "exp:0.5",
]
PATIENCE = ["--hold", "exp:0.3", "--patience", "exp:1.5"]


@dataclass(frozen=True)
class Case:
    """A run: the configuration of the proxy, and the behaviour of its back ends and callers."""

    name: str
    mode: str
    rate_cps: float
    law: str | None = None
    dies: bool = False
    callee: tuple[str, ...] = ()
    caller: tuple[str, ...] = ()


CASES = tuple(
    case
    for mode in ("transaction", "stateless")
    for case in (
        Case(f"{mode}: three times the capacity, pi", mode, 3 * COSTS.capacity_cps, law="pi"),
        Case(
            f"{mode}: twice the capacity, occupancy, mixed calls",
            mode,
            2 * COSTS.capacity_cps,
            law="occupancy",
            callee=tuple(MIXED),
            caller=tuple(PATIENCE),
        ),
        Case(f"{mode}: a back end dies", mode, 150, dies=True),
        Case(
            f"{mode}: a back end dies, pi, mixed calls",
            mode,
            150,
            law="pi",
            dies=True,
            callee=tuple(MIXED),
            caller=tuple(PATIENCE),
        ),
    )
)


def record_run(program: Path, case: Case, seed: int, recording: Path) -> int:
    """Records a run, and returns the number of calls that were started."""
    with Stage() as stage:
        callees = [
            tidegate.callee(stage, name, options=[*case.callee, "--seed", str(seed + place)])
            for place, name in enumerate(("first", "second"))
        ]
        tables = HEALTH + (OVERLOAD.format(case.law) if case.law else "")
        edge = tidegate.configure(stage, [callee.port for callee in callees], mode=case.mode, tables=tables)
        command = [str(program), "run", "--config", str(edge.configuration), "--record", str(recording)]
        element = stage.serve("tidegate", command, edge.port)
        if case.dies:
            # The back end is down for the last two thirds of the time, with its port closed.
            killer = f"sleep 3; kill -KILL {callees[0].process.pid}"
            stage.start("killer", ["sh", "-c", killer])
        load = Load(case.rate_cps, 0.0, 9.0, seed)
        options = [*case.caller, "--callers", "50", "--uneven"]
        outcome = offer(stage, element, edge.address, callees[1], load, options=options)
        element.end_in_order()
    return outcome.calls


def first_difference(old: Path, new: Path, recording: Path) -> str:
    """Returns the lines around the first packet that differs, of OLD and of NEW."""
    dumps = []
    for name, program in (("old", old), ("new", new)):
        dump = recording.with_suffix(f".{name}.dump")
        replay(program, recording, "--dump", str(dump), name=name)
        dumps.append(dump.read_text(errors="replace").splitlines() if dump.exists() else [])
    for number, (one, other) in enumerate(zip_longest(*dumps)):
        if one != other:
            before = "\n".join(dumps[0][max(0, number - 12) : number])
            after = ("\n".join(lines[number : number + 12]) for lines in dumps)
            return "{}\n--- OLD\n{}\n--- NEW\n{}\n".format(before, *after)
    return "the texts of all packets are alike\n"


def program(which: str, name: str) -> Path:
    """Returns the program at a path, or builds that of a commit."""
    if Path(which).is_file() and os.access(which, os.X_OK):
        return Path(which).resolve()
    tree = ACROSS / name
    git = ["git", "-C", str(ROOT)]
    if subprocess.run(
        [*git, "rev-parse", "--verify", "--quiet", f"{which}^{{commit}}"], stdout=subprocess.DEVNULL, check=False
    ).returncode:
        sys.exit(f"{which} is neither a program nor a commit")
    subprocess.run([*git, "worktree", "add", "--quiet", "--force", "--detach", str(tree), which], check=True)
    try:
        print(f"building {which}", flush=True)
        target = ACROSS / "target"
        subprocess.run(
            ["cargo", "build", "--quiet", "--package", "tidegate"],
            cwd=tree,
            check=True,
            env=os.environ | {"CARGO_TARGET_DIR": str(target)},
        )
        built = ACROSS / f"tidegate-{name}"
        shutil.copy2(target / "debug" / "tidegate", built)
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)
    return built


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", help="the program or commit that records")
    parser.add_argument("new", help="the program or commit that replays")
    parser.add_argument(
        "--rounds", type=int, default=3, help="runs of each case, each with its own seed (default %(default)s)"
    )
    parser.add_argument("--case", default="", help="only the runs whose names contain this text")
    given = parser.parse_args(arguments)
    cases = [(number, case) for number, case in enumerate(CASES) if given.case in case.name]
    if not cases:
        parser.error(f"--case: no run has a name with {given.case!r}; the names are {', '.join(c.name for c in CASES)}")
    if given.rounds < 1:
        parser.error("--rounds must be at least 1")
    ACROSS.mkdir(parents=True, exist_ok=True)
    old, new = program(given.old, "old"), program(given.new, "new")
    record = Record("show", "across")
    rows: list[dict[str, Any]] = []
    with Stage() as stage:
        for seed in range(1, given.rounds + 1):
            for number, case in cases:
                recording = stage.directory / f"{number}-{seed}"
                calls = record_run(old, case, seed, recording)
                own, other = replay(old, recording, name="own"), replay(new, recording, name="new")
                title = f"{case.name}, seed {seed}"
                record.expect(own.exact, f"{title}: OLD replays its own recording")
                record.expect(other.exact, f"{title}: {calls} calls; NEW: {other.line}")
                record.keep(recording.with_suffix(".new.txt"))
                if not other.exact:
                    told = first_difference(old, new, recording)
                    record.text(f"{number}-{seed}.difference", told)
                    print(told)
                rows.append({"case": case.name, "seed": seed, "calls": calls, "exact": other.exact, "said": other.line})
    record.rows("runs", rows)
    print(f"{sum(row['exact'] for row in rows)} of {len(rows)} runs are alike")
    return record.finish(runs=rows, old=given.old, new=given.new)
