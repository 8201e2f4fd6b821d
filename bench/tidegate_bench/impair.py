"""A relay of `tidegate lab impair`: a link of a given quality in front of a server."""

import json
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate_bench.process import Process, Stage
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.tidegate import built


@dataclass(frozen=True)
class Quality:
    """The effects of the link on datagrams, the same in both directions."""

    loss: str = "0%"
    delay: str = "0ms"
    jitter: str = "0ms"
    reorder: str = "0%"
    duplicate: str = "0%"

    @property
    def loss_share(self) -> float:
        return float(self.loss.removesuffix("%")) / 100

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items() if value.strip("0%ms"))


class Relay:
    """One running relay."""

    def __init__(self, process: Process, port: int, counts: Path) -> None:
        self.process = process
        self.port = port
        self._counts = counts

    @property
    def address(self) -> str:
        return f"{LOCALHOST}:{self.port}"

    def finish(self) -> dict[str, Any]:
        """Ends the relay, and returns its counts."""
        self.process.stop(signal.SIGTERM)
        counts: dict[str, Any] = json.loads(self._counts.read_text())
        return counts


def relay(stage: Stage, name: str, target_port: int, quality: Quality, seed: int) -> Relay:
    """Starts a relay in front of `target_port`, and returns when it listens."""
    port, counts = free_port(), stage.directory / f"{name}.json"
    command = [built("tidegate"), "lab", "impair", "--listen", f"{LOCALHOST}:{port}"]
    command += ["--target", f"{LOCALHOST}:{target_port}", "--seed", str(seed)]
    command += ["--json", str(counts)]
    for option, value in vars(quality).items():
        command += [f"--{option}", value]
    return Relay(stage.serve(name, command, port), port, counts)
