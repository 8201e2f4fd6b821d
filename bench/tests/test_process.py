"""Scripts that are ended leave no process behind."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import unittest
from collections.abc import Callable
from pathlib import Path

BENCH = Path(__file__).parents[1]

# A server that does not end by SIGTERM, in each of two workers. Its marker is in its command line.
SCRIPT = """
import sys, time
from tidegate_bench.process import Stage, in_parallel

def run(number):
    with Stage() as stage:
        stage.start("stubborn", ["sh", "-c", f"trap '' TERM; echo {sys.argv[1]}; while true; do sleep 1; done"])
        time.sleep(60)

if __name__ == "__main__":
    list(in_parallel(2, run, [1, 2, 3]))
"""


def running(marker: str) -> list[str]:
    """Returns the processes with this marker in their command line."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker in command.read_text():
                found.append(command.parent.name)
        except OSError:
            continue
    return found


def kill(marker: str) -> None:
    """Kills the processes with this marker."""
    for pid in running(marker):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


class Ending(unittest.TestCase):
    def test_a_script_and_its_workers_that_are_ended_together_leave_nothing(self) -> None:
        marker = f"marker-of-a-test-{os.getpid()}"
        # `pkill -f` and a terminal end the script and its workers at once.
        script = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, marker],
            cwd=BENCH,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(kill, marker)
        self.wait_until(lambda: len(running(marker)) >= 5)
        os.killpg(script.pid, signal.SIGTERM)
        script.wait(20)
        self.wait_until(lambda: not running(marker))

    def wait_until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, "the condition does not hold")
            time.sleep(0.1)
