"""The record of a run: its raw data, its machine, and its conditions with their results."""

import csv
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Spread(NamedTuple):
    """The minimum, the median and the maximum of several measurements of one quantity."""

    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(min(values), statistics.median(values), max(values))

    def text(self, digits: int) -> str:
        """Returns minimum, median and maximum, with this number of digits after the point."""
        return "  ".join(f"{value:9.{digits}f}" for value in self)


def quantile(values: Iterable[float], share: float) -> float:
    """Returns the smallest value that at least this share of the values does not exceed, or infinity without values."""
    ascending = sorted(values)
    return ascending[max(ceil(share * len(ascending)) - 1, 0)] if ascending else inf


class Record:
    """A folder of raw data under `out/`, and the conditions with their results."""

    def __init__(self, kind: str, name: str) -> None:
        self.machine = _machine()
        commit = self.machine["commit"][:12] + ("-modified" if self.machine["modified"] else "")
        stamp = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{commit}"
        self.directory = ROOT / "out" / kind / name / stamp
        self.directory.mkdir(parents=True)
        self._conditions: list[dict[str, Any]] = []
        self._needs_conditions = True
        print(f"{name} at commit {commit}, {self.machine['date']}")
        print(f"{self.machine['cpu']}, {self.machine['cores']} cores, Linux {self.machine['kernel']}")
        print(f"raw data: {self.directory.relative_to(ROOT)}", flush=True)

    def expect(self, held: bool, condition: str) -> bool:
        """Records and prints whether a condition held."""
        self._conditions.append({"condition": condition, "held": held})
        print(f"  {'ok  ' if held else 'FAIL'}  {condition}", flush=True)
        return held

    def expect_nothing(self, reason: str) -> None:
        """Records that no condition is expected, and prints the reason."""
        self._needs_conditions = False
        print(f"        nothing is expected: {reason}", flush=True)

    def rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Writes `name`.csv and returns its rows."""
        listed = list(rows)
        with (self.directory / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(listed[0]) if listed else [])
            writer.writeheader()
            writer.writerows(listed)
        return listed

    def text(self, name: str, text: str) -> None:
        """Writes a file of this name."""
        (self.directory / name).write_text(text)

    def keep(self, *files: Path, prefix: str = "") -> None:
        """Copies files that exist, such as the logs of a run, beside the data.

        The name of each copy begins with `prefix`. Runs whose files have the same names need different prefixes: it is
        an error if there is a file with the name of the copy.
        """
        for file in files:
            if file.exists():
                with (self.directory / f"{prefix}{file.name}").open("xb") as copy:
                    copy.write(file.read_bytes())

    def finish(self, **results: Any) -> int:
        """Writes result.json. Returns the exit status: 0 if every condition held, else 1.

        A record without conditions has checked nothing. It fails, unless `expect_nothing` says that there are none.
        """
        if self._needs_conditions and not self._conditions:
            self.expect(False, "at least one condition is checked")
        held = all(entry["held"] for entry in self._conditions)
        result = {"machine": self.machine, "held": held, "conditions": self._conditions, **results}
        (self.directory / "result.json").write_text(json.dumps(result, indent=2) + "\n")
        missed = sum(not entry["held"] for entry in self._conditions)
        if self._conditions:
            print(f"{len(self._conditions) - missed} of {len(self._conditions)} conditions held")
        return 0 if held else 1


def _machine() -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "commit": _git("rev-parse", "HEAD") or "unknown",
        "modified": bool(_git("status", "--porcelain")),
        "kernel": platform.release(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
