"""Recordings of a Tidegate, replayed without sockets."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Replayed:
    """The output of a replay, and its figures."""

    exact: bool
    """True if every packet was the same as the recorded one."""
    said: str
    figures: dict[str, Any]

    @property
    def line(self) -> str:
        """The line that says how exact the replay was, or the whole output if there is none."""
        return next((line for line in self.said.splitlines() if line.startswith("exact: ")), self.said.strip())


def replay(program: str | Path, recording: Path, *more: str, laws: tuple[str, ...] = (), name: str = "") -> Replayed:
    """Replays a recording. Stores the figures and the output beside it, in RECORDING[.NAME].json and .txt."""
    file = recording.with_suffix(f"{name and '.'}{name}.json")
    words = [str(program), "replay", str(recording), "--json", str(file), *more]
    done = subprocess.run(
        [*words, *(word for law in laws for word in ("--law", law))], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    file.with_suffix(".txt").write_text(said)
    figures: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return Replayed(done.returncode == 0 and bool(figures.get("exact")), said, figures)
