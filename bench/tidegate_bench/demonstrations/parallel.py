"""Schedulers divide the runs of a scenario among processes, which fill one directory

Runs eight shards of scenarios/overload-local.toml in simulated time, each in a process of its own, two at a time:
started by GNU parallel, by HyperQueue with two workers, and by Slurm with a job array on one node. Then a run of the
whole scenario must find every result there, and must write the same files as a single process. `--by` selects some
schedulers. This takes about two minutes.
"""

import argparse
import functools
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tidegate_bench import program, schedulers, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import ROOT

SCENARIO = ROOT / "scenarios" / "overload-local.toml"
SHARDS = 8


def arguments(out: Path) -> list[str]:
    """Returns the arguments of `tidegate lab run`."""
    return [str(SCENARIO), "--world", "sim", "--out", str(out)]


def run(out: Path) -> list[str]:
    return [str(tidegate.built("tidegate")), "lab", "run", *arguments(out), "--jobs", "1"]


def seconds(action: Callable[[], object]) -> float:
    """Runs an action. Returns how long it took, in s."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


class Show(Demonstration):
    ROUNDS = None

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--by",
            default=",".join(schedulers.ALL),
            help="schedulers to use, separated by commas (default %(default)s)",
        )

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        options.by = options.by.split(",")
        if unknown := set(options.by) - set(schedulers.ALL):
            raise SystemExit(f"no scheduler {', '.join(unknown)}: there are {', '.join(schedulers.ALL)}")

    def run(self) -> Results:
        alone = self.directory / "alone"
        took_s = {"alone": seconds(lambda: program.output(*run(alone), ok=(0, 1)))}
        print(f"  one process alone took {took_s['alone']:.1f} s", flush=True)
        for name in self.options.by:
            shared, logs = self.directory / name, self.directory / f"{name}-logs"
            logs.mkdir()
            schedule = functools.partial(schedulers.ALL[name], arguments(shared), SHARDS, logs)
            took_s[name] = seconds(schedule)
            whole = subprocess.run(run(shared), cwd=ROOT, capture_output=True, text=True, check=False)
            head = whole.stderr.splitlines()[0]
            print(f"  {name}: {SHARDS} shards took {took_s[name]:.1f} s; then the whole: {head}", flush=True)
            self.expect(
                head.startswith("144 runs, of which 144 were made before"),
                f"{name}: the results of all runs were found",
            )
            self.expect(files(shared) == files(alone), f"{name}: the files are those of one process alone")
        return {"shards": SHARDS, "took_s": took_s}
