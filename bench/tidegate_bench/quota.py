"""A share of one core for a process: a quota of the kernel's cgroups, versions 1 and 2."""

import contextlib
import itertools
import os
import sys
import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_VERSION_1 = _ROOT / "cpu"
_numbers = itertools.count()
# What demonstrations give a server that nothing emulates: 1 ms of every 5.
SHARE = 0.2


class Quota:
    """A control group that may use `share` of one core, in slices of `period_us`.

    A process that is given it runs in it from its first instruction, with all its
    children. The group is removed at the end of the `with` block, when they must be gone.
    """

    def __init__(self, share: float = SHARE, period_us: int = 5000) -> None:
        self.share = share
        name = f"tidegate-{os.getpid()}-{next(_numbers)}"
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

    def throttled_s(self) -> float:
        """Time for which it was kept from running so far."""
        for line in (self._group / "cpu.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "throttled_time":
                return int(value) / 1e9
            if name == "throttled_usec":
                return int(value) / 1e6
        return 0.0
