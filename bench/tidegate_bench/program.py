"""Programs that run to their end and print a result."""

import json
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tidegate_bench import tidegate
from tidegate_bench.process import end_with_parent
from tidegate_bench.record import ROOT

Json = dict[str, Any]


def output(*command: object, ok: Collection[int] = (0,), timeout: float | None = None) -> str:
    """Runs a command in the root of the repository and returns its standard output.

    Ends this process if the exit status is not in `ok`.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        preexec_fn=end_with_parent,  # It calls only the kernel, so it is safe after a fork.
    )
    if done.returncode not in ok:
        raise SystemExit(f"{' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def result(*command: object, ok: Collection[int] = (0,)) -> Json:
    """Runs a command that prints JSON, and returns this JSON."""
    printed: Json = json.loads(output(*command, ok=ok))
    return printed


def example(name: str, *arguments: object, profile: str = "release") -> Json:
    """Runs an example that cargo has built and returns the JSON that it prints."""
    return result(tidegate.built(f"examples/{name}", profile), *arguments)


def lab(*arguments: object, profile: str = "debug") -> str:
    """Runs `tidegate lab`. Status 1 means that an expectation of the scenario was not met, or that a run failed."""
    return output(tidegate.built("tidegate", profile), "lab", *arguments, ok=(0, 1))


def scenario(name: object, out: Path, *arguments: object, profile: str = "debug") -> Json:
    """Runs a scenario by `tidegate lab run` and returns its results.

    Ends this process if a run failed, because medians of the other runs would hide it. It also ends this process if
    repetitions with different seeds are equal, because they are one run counted several times and support no verdict.
    """
    lab("run", name, "--out", out, *arguments, profile=profile)
    results: Json = json.loads((out / "results.json").read_text())
    missed = [condition["condition"] for condition in results["conditions"] if not condition["held"]]
    equal = [condition for condition in missed if condition.startswith("the repetitions of ")]
    failed = [f"a run of {run['variant']}, {run['swept']} failed: {run['error']}" for run in results["failed"]]
    if equal or failed:
        raise SystemExit("\n".join([f"{name}:", *equal, *failed]))
    return results


def swarm(*arguments: object, program: object | None = None, profile: str = "debug") -> Json:
    """Runs `tidegate lab swarm` and returns its result. Status 1 means that it found a violation."""
    return result(program or tidegate.built("tidegate", profile), "lab", "swarm", "--json", *arguments, ok=(0, 1))
