"""Tests that a script leaves no process behind when it is ended."""

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
from tidegate_bench.process import Stage, exit_on_signals, in_parallel

def run(number):
    with Stage() as stage:
        stage.start("stubborn", ["sh", "-c", f"trap '' TERM; echo {sys.argv[1]}; while true; do sleep 1; done"])
        time.sleep(60)

if __name__ == "__main__":
    if "command" in sys.argv:
        exit_on_signals()
    list(in_parallel(2, run, [1, 2, 3]))
"""

# A program whose end the script waits for, and which may ignore SIGTERM. Its marker is in its command line.
WAITING = """
import sys
from tidegate_bench import program
from tidegate_bench.process import exit_on_signals

exit_on_signals()
trap = "trap '' TERM; " if "stubborn" in sys.argv else ""
program.output("sh", "-c", f"{trap}echo {sys.argv[1]}; while true; do sleep 1; done")
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
    def setUp(self) -> None:
        self.marker = f"marker-of-a-test-{os.getpid()}"
        self.addCleanup(kill, self.marker)

    def start(self, script: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a script, and waits until it has started its processes."""
        started = subprocess.Popen(
            [sys.executable, "-c", script, self.marker, *arguments],
            cwd=BENCH,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        count = 5 if script is SCRIPT else 2
        self.wait_until(lambda: len(running(self.marker)) >= count)
        # A new process first has the command line of its parent, which is still starting it.
        time.sleep(0.5)
        return started

    def test_a_script_and_its_workers_that_are_ended_together_leave_nothing(self) -> None:
        for arguments in ((), ("command",)):
            with self.subTest(arguments):
                script = self.start(SCRIPT, *arguments)
                # `pkill -f` and a terminal end the script and its workers at once.
                os.killpg(script.pid, signal.SIGTERM)
                script.wait(20)
                self.wait_until(lambda: not running(self.marker))

    def test_a_command_that_is_ended_alone_ends_its_workers(self) -> None:
        script = self.start(SCRIPT, "command")
        script.terminate()
        self.assertEqual(script.wait(20), 128 + signal.SIGTERM)
        self.wait_until(lambda: not running(self.marker))

    def test_a_script_that_is_ended_leaves_no_program_that_it_waits_for(self) -> None:
        for number, arguments in ((signal.SIGTERM, ("stubborn",)), (signal.SIGKILL, ())):
            with self.subTest(number):
                script = self.start(WAITING, *arguments)
                script.send_signal(number)
                script.wait(20)
                self.wait_until(lambda: not running(self.marker))

    def wait_until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, "the condition does not hold")
            time.sleep(0.1)
