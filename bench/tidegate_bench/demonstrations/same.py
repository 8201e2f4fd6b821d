"""Simulated results are the same to the byte with one or two runs at a time, and differ with another seed

Every file of scenarios/overload-local.toml in simulated time, 144 runs of eight variants at six loads, goes into one
SHA-256: tables, figures, the report, and for each run its result, its timeline and the configuration of its server.
This takes about a minute.
"""

import hashlib
from pathlib import Path
from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results

SCENARIO = "scenarios/overload-local.toml"
# Name, jobs and seed of each run.
RUNS = (("1 job", 1, 1), ("2 jobs", 2, 1), ("1 job again", 1, 1), ("2 jobs again", 2, 1), ("seed 2", 2, 2))


def digest(folder: Path) -> tuple[str, int]:
    """Returns the SHA-256 of the paths and contents of all files, and the number of files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    whole = hashlib.sha256()
    for path in files:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(folder)} {content}\n".encode())
    return whole.hexdigest(), len(files)


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        runs: list[dict[str, Any]] = []
        for name, jobs, seed in RUNS:
            out = self.directory / name.replace(" ", "-")
            program.scenario(SCENARIO, out, "--world", "sim", "--jobs", jobs, "--seed", seed)
            sha256, files = digest(out)
            print(f"  {name:<14}{files} files  {sha256}", flush=True)
            runs.append({"run": name, "jobs": jobs, "seed": seed, "files": files, "sha256": sha256})
        self.rows("runs", runs)
        same = {run["sha256"] for run in runs if run["seed"] == 1}
        self.expect(len(same) == 1, "four runs with one seed wrote the same bytes")
        self.expect(runs[-1]["sha256"] not in same, "another seed wrote other bytes")
        self.expect(runs[0]["files"] > 3 * 144, "all files of 144 runs were compared")
        return {"runs": runs}
