"""Processes that are measured. None of them outlives its script."""

import contextlib
import ctypes
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from tidegate_bench import sockets
from tidegate_bench.quota import Quota

NS = 1_000_000_000
_PR_SET_PDEATHSIG = 1
# The signals that end a script in order.
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_libc = ctypes.CDLL(None)
_Result = TypeVar("_Result")


def exit_on_signals() -> None:
    """Makes SIGTERM and SIGHUP raise `SystemExit`, so that this process ends its children before it ends."""
    for number in _ENDING:
        # `nohup` makes its command ignore SIGHUP.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave)


def end_with_parent() -> None:
    """Makes the kernel send SIGTERM to this process when its parent ends."""
    # A script that is killed cannot clean up, so the kernel ends its processes.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Process:
    """A started program with all its children, in a session of its own."""

    def __init__(self, name: str, command: list[str], output: Path, quota: Quota | None = None) -> None:
        self.name = name
        self.output = output
        self.exit_status: int | None = None
        self._cpu_ns_seen: dict[int, int] = {}
        self._cpu_ns_final = 0
        self._drops_seen = 0

        def enter() -> None:
            end_with_parent()
            if quota:
                quota.join()

        with output.open("ab") as sink:
            self._popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=output.parent,
                start_new_session=True,
                preexec_fn=enter,  # noqa: PLW1509, it calls only the kernel
            )
        self.pid = self._popen.pid

    def pids(self) -> list[int]:
        """Returns the ids of all its processes that still run: the program and its descendants."""
        members = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and _session(entry) == self.pid:
                members.append(int(entry))
        return members

    def cpu_ns(self) -> int:
        """Returns the CPU time since the start in ns, of all threads of all its processes.

        After its end, this is the CPU time that the kernel accounted at its exit (in steps of 1 µs).
        """
        return max(sum(self.cpu_ns_by_thread().values()), self._cpu_ns_final)

    def cpu_ns_by_thread(self) -> dict[int, int]:
        """Returns the CPU time since the start in ns, of each thread. After its end, these are the last values read."""
        if self.running():
            for pid in self.pids():
                self._cpu_ns_seen.update(_cpu_ns_by_thread(pid))
        return dict(self._cpu_ns_seen)

    def wakes(self) -> int:
        """Returns how often the threads of all its processes have gone to sleep since the start."""
        return sum(_wakes(pid) for pid in self.pids())

    def drops(self) -> int:
        """Returns how many datagrams its UDP sockets have dropped. After its end, this is the last value read."""
        if self.running():
            self._drops_seen = max(self._drops_seen, sockets.drops(self.pids()))
        return self._drops_seen

    def resident_bytes(self) -> int:
        """Returns the present memory of all its processes together (VmRSS)."""
        return sum(_kib(f"/proc/{pid}/status", "VmRSS:") * 1024 for pid in self.pids())

    def memory_bytes(self) -> int:
        """Returns the present memory of all its processes together. Memory that they share counts once (Pss)."""
        return sum(_kib(f"/proc/{pid}/smaps_rollup", "Pss:") * 1024 for pid in self.pids())

    def running(self) -> bool:
        """Returns whether it still runs. After its end, `exit_status` has its exit status."""
        if self.exit_status is not None:
            return False
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return True
        self.exit_status = os.waitstatus_to_exitcode(status)
        # Otherwise Popen would wait for a child that no longer exists.
        self._popen.returncode = self.exit_status
        self._cpu_ns_final = int((usage.ru_utime + usage.ru_stime) * NS)
        return False

    def require_running(self) -> None:
        """Ends the script if it has ended, with the last lines of its output."""
        if not self.running():
            sys.exit(f"{self.name} ended under the load:\n{self.tail()}")

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the program itself."""
        if self.running():
            os.kill(self.pid, number)

    def send_all(self, number: signal.Signals) -> None:
        """Sends a signal to the program and all its processes."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait(self, seconds: float) -> bool:
        """Waits for its end. Returns False if it still runs after `seconds`."""
        deadline = time.monotonic() + seconds
        while self.running():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        return True

    def stop(self, first: signal.Signals = signal.SIGTERM, patience_s: float = 5.0) -> None:
        """Sends `first` to the program. After its end or after `patience_s`, kills all its processes that still run."""
        self.cpu_ns()
        self.drops()
        self.send(first)
        self.wait(patience_s)
        self.send_all(signal.SIGKILL)
        self.wait(patience_s)

    def end_in_order(self) -> None:
        """Ends it by SIGTERM, and by a second SIGTERM if it still has open work."""
        for _ in range(2):
            self.send(signal.SIGTERM)
            if self.wait(1.0):
                break
        self.stop()

    def tail(self, lines: int = 12) -> str:
        """Returns the last lines of its output."""
        text = self.output.read_text(errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in text[-lines:])


class Cores:
    """The cores that each of these processes has used on average since this object was made."""

    def __init__(self, *processes: Process) -> None:
        self._processes = processes
        self._before = [process.cpu_ns() for process in processes]
        self._begun = time.monotonic()

    def used(self) -> list[float]:
        """Returns the number of cores for each process, in the order of the processes."""
        elapsed_ns = (time.monotonic() - self._begun) * NS
        pairs = zip(self._processes, self._before, strict=True)
        return [(process.cpu_ns() - before) / elapsed_ns for process, before in pairs]


class Stage:
    """The place of a run: a scratch directory, and the processes started in it.

    The end of the `with` block, even after an error, ends the processes and removes the directory.
    """

    def __init__(self) -> None:
        self.processes: list[Process] = []

    def __enter__(self) -> "Stage":
        self.directory = Path(tempfile.mkdtemp(prefix="tidegate-"))
        exit_on_signals()
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self, name: str, command: list[str], quota: Quota | None = None) -> Process:
        """Starts a program. Its output goes to `name`.log in the scratch directory."""
        process = Process(name, command, self.directory / f"{name}.log", quota)
        self.processes.append(process)
        return process

    def serve(
        self,
        name: str,
        command: list[str],
        port: int,
        seconds: float = 10,
        quota: Quota | None = None,
        over_streams: bool = False,
    ) -> Process:
        """Starts a program. Returns it when its port is open.

        This means that a UDP socket is bound to `port`, or, if `over_streams`, that a TCP socket listens there.
        """
        process = self.start(name, command, quota)
        deadline = time.monotonic() + seconds
        is_open = sockets.listening if over_streams else sockets.bound
        while not is_open(port):
            if not process.running() or time.monotonic() > deadline:
                sys.exit(f"{name} did not open {'TCP' if over_streams else 'UDP'} port {port}:\n{process.tail()}")
            time.sleep(0.02)
        return process

    def clear(self) -> None:
        """Ends every process, the last started first."""
        while self.processes:
            self.processes.pop().stop()

    def kill(self) -> None:
        """Kills every process at once, because an overloaded server may take long to stop in an orderly way."""
        while self.processes:
            self.processes.pop().stop(signal.SIGKILL)


def in_parallel(jobs: int, run: Callable[..., _Result], *arguments: Iterable[Any]) -> Iterator[_Result]:
    """Calls `run` with each of the arguments, `jobs` times at once. Yields the results in the order of the arguments.

    With more than one job, each call is in another process than this script, so `run` must be a function of a module.
    """
    if jobs == 1:
        yield from map(run, *arguments)
        return
    pool = ProcessPoolExecutor(jobs, initializer=end_with_parent)
    try:
        yield from pool.map(partial(_in_worker, run), *arguments)
    finally:
        pool.shutdown(cancel_futures=True)


def _in_worker(run: Callable[..., _Result], *arguments: Any) -> _Result:
    try:
        return run(*arguments)
    except SystemExit as end:
        # The worker would pass this on to the script and wait for the next call. But the script may have ended too.
        if end.code in {128 + number for number in _ENDING}:
            os._exit(end.code)
        raise


def _leave(number: int, _frame: FrameType | None) -> None:
    # If the script and its worker are ended together, the worker gets a second signal when the script ends. This signal
    # must not interrupt the end of the processes.
    for ending in _ENDING:
        signal.signal(ending, signal.SIG_IGN)
    # Otherwise the script would wait until its workers have finished their calls.
    for worker in multiprocessing.active_children():
        worker.terminate()
    sys.exit(128 + number)


def _session(pid: str) -> int:
    try:
        stat = Path("/proc", pid, "stat").read_text()
    except OSError:
        return -1
    # The name in parentheses may itself contain blanks and parentheses.
    state, _parent, _group, session = stat.rpartition(")")[2].split()[:4]
    return -1 if state == "Z" else int(session)


def _cpu_ns_by_thread(pid: int) -> dict[int, int]:
    used = {}
    for schedstat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            used[int(schedstat.parent.name)] = int(schedstat.read_text().split()[0])
    return used


def _wakes(pid: int) -> int:
    """Returns the voluntary context switches of all threads of one process, or 0 if the process has ended."""
    total = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with contextlib.suppress(OSError):
            for line in status.read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    total += int(line.split()[1])
    return total


def _kib(file: str, name: str) -> int:
    """Returns the number after `name` in a file of /proc, or 0 if the process has ended."""
    with contextlib.suppress(OSError):
        for line in Path(file).read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    return 0
