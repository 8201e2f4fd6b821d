"""GNU parallel divides the runs of a scenario among processes, which fill one directory

Runs eight shards of scenarios/overload-local.toml in simulated time, each in a process of its own, two at a time. Then
a run of the whole scenario must find every result there, and must write the same files as a single process. This takes
about a minute.
"""

import subprocess
import time
from pathlib import Path

from tidegate_bench import program, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import ROOT

SCENARIO = ROOT / "scenarios" / "overload-local.toml"
SHARDS = 8
AT_ONCE = 2


def run(out: Path, *arguments: str) -> list[str]:
    command = [tidegate.built("tidegate"), "lab", "run", str(SCENARIO), "--world", "sim"]
    return [*command, "--jobs", "1", "--out", str(out), *arguments]


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        shared, alone = self.directory / "shared", self.directory / "alone"

        shards = [str(number) for number in range(1, SHARDS + 1)]
        log = self.directory / "parallel.log"
        command = ["parallel", "--will-cite", "--jobs", str(AT_ONCE), "--joblog", str(log)]
        command += [*run(shared, "--shard", f"{{}}/{SHARDS}"), ":::", *shards]
        print(f"  {' '.join(command[:1] + command[2:])}", flush=True)
        began = time.monotonic()
        program.output(*command)
        took_s = time.monotonic() - began
        print(f"  {SHARDS} shards were run in {took_s:.1f} s")

        whole = subprocess.run(run(shared), cwd=ROOT, capture_output=True, text=True, check=False)
        head = whole.stderr.splitlines()[0]
        print(f"  then the whole: {head}")
        self.expect(head.startswith("144 runs, of which 144 were made before"), "every point was found")
        program.output(*run(alone), ok=(0, 1))
        self.expect(files(shared) == files(alone), "one process alone writes the same files")
        return {"shards": SHARDS, "took_s": took_s}
