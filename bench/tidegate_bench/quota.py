"""A share of one core for a process: a quota of the kernel's cgroups, versions 1 and 2."""

import contextlib
import gzip
import itertools
import os
import re
import sys
import time
from pathlib import Path
from subprocess import PIPE, Popen
from typing import NamedTuple

_ROOT = Path("/sys/fs/cgroup")
_VERSION_1 = _ROOT / "cpu"
_numbers = itertools.count()
# A program that never sleeps. It prints how long it ran each time, and then how long it waited each time, in ms.
# Interruptions of at most 1.5 ms have other causes than the quota, so they do not count.
_SPIN = """
import sys, time
end, began, last, runs, waits = time.monotonic() + float(sys.argv[1]), None, time.monotonic(), [], []
while last < end:
    now = time.monotonic()
    if now - last > 0.0015:
        waits.append(now - last)
        if began is not None:
            runs.append(last - began)
        began = now
    last = now
for times in (runs, waits):
    print(*(f"{1000 * time:.2f}" for time in times))
"""
# The quota of a server that is not emulated: 1 ms of every 5.
SHARE = 0.2
PERIOD_MS = 5
# The kernel accepts no quota below 1 ms (`min_cfs_quota_period` in Linux's kernel/sched/core.c).
_QUOTA_MIN_US = 1000


def tick_ms() -> float:
    """Returns the time between two ticks of the kernel's clock, in ms."""
    try:
        shown = gzip.decompress(Path("/proc/config.gz").read_bytes()).decode()
    except OSError:
        shown = Path(f"/boot/config-{os.uname().release}").read_text()
    found = re.search(r"^CONFIG_HZ=(\d+)$", shown, re.MULTILINE)
    assert found, "a configuration of Linux states CONFIG_HZ"
    return 1000 / int(found[1])


class Throttled(NamedTuple):
    """The throttling of a control group by its quota so far."""

    quota_periods: int
    """Number of periods in which the group had something to run."""
    throttled_periods: int
    """Number of these periods in which the quota kept the group from running."""
    throttled_s: float
    """Time in s for which the quota kept the group from running."""

    @classmethod
    def read(cls, file: Path) -> "Throttled":
        """Reads the file `cpu.stat` of a control group. The time is in ns in version 1, and in µs in version 2."""
        stat = {name: int(value) for name, value in map(str.split, file.read_text().splitlines())}
        time_s = stat["throttled_time"] / 1e9 if "throttled_time" in stat else stat["throttled_usec"] / 1e6
        return cls(stat["nr_periods"], stat["nr_throttled"], time_s)


class Quota:
    """A control group that may use `share` of one core in each period of `period_us`.

    For a small share the period is longer, because the kernel accepts no quota below 1 ms.

    A process that is started with this quota is in the group from its first instruction, with all its children. The
    group is removed at the end of the `with` block, when all these processes must have ended.
    """

    def __init__(self, share: float = SHARE, period_us: int = 1000 * PERIOD_MS) -> None:
        self.share = share
        name = f"tidegate-{os.getpid()}-{next(_numbers)}"
        period_us = max(period_us, round(_QUOTA_MIN_US / share))
        quota_us = round(share * period_us)
        try:
            if (_VERSION_1 / "cpu.cfs_quota_us").exists():
                self._group = _VERSION_1 / name
                self._group.mkdir()
                limits: dict[str, int | str] = {"cpu.cfs_period_us": period_us, "cpu.cfs_quota_us": quota_us}
            else:
                (_ROOT / "cgroup.subtree_control").write_text("+cpu")
                self._group = _ROOT / name
                self._group.mkdir()
                limits = {"cpu.max": f"{quota_us} {period_us}"}
            for file, value in limits.items():
                (self._group / file).write_text(f"{value}")
        except OSError as error:
            sys.exit(f"no control group can be made (is this root, with cgroups?): {error}")

    def __enter__(self) -> "Quota":
        return self

    def __exit__(self, *error: object) -> None:
        for _ in range(50):
            with contextlib.suppress(OSError):
                self._group.rmdir()
                return
            # The kernel still counts a process that has just ended.
            time.sleep(0.02)

    def join(self) -> None:
        """Puts the calling process into the group."""
        (self._group / "cgroup.procs").write_text("0")

    def stretches_ms(self, seconds: float = 1.0) -> tuple[float, float]:
        """Returns the median times for which a thread that never sleeps runs in this group, and then waits, in ms."""
        spin = [sys.executable, "-c", _SPIN, str(seconds)]
        # Between fork and exec, `join` calls only the kernel.
        with Popen(spin, stdout=PIPE, text=True, preexec_fn=self.join) as busy:  # noqa: PLW1509
            shown, _ = busy.communicate(timeout=60 + seconds / self.share)
        runs, waits = (sorted(map(float, line.split())) for line in shown.splitlines())
        return runs[len(runs) // 2], waits[len(waits) // 2]

    def throttled(self) -> Throttled:
        """Returns how often and for how long the quota has kept the group from running so far."""
        return Throttled.read(self._group / "cpu.stat")
