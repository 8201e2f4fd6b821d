"""A Debian 12 in a folder of this repository, and services in it, started as systemd would start them."""

import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tidegate_bench.process import Process, Stage
from tidegate_bench.record import ROOT

BASE = ROOT / "out" / "debian" / platform.machine()
"""A root directory that debootstrap has made. It is copied but never changed."""


def bootstrap() -> None:
    """Makes the base if it does not exist. This downloads about 60 MB."""
    if BASE.exists():
        return
    if os.geteuid() != 0:
        sys.exit("debootstrap needs root: run this command as root")
    unfinished = BASE.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    print(f"debootstrap makes {BASE.relative_to(ROOT)}", flush=True)
    command = ["debootstrap", "--variant=minbase", "--include=adduser,systemd", "bookworm", str(unfinished)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"debootstrap: status {done.returncode}\n{done.stdout[-3000:]}{done.stderr}")
    unfinished.rename(BASE)


class Unit:
    """The keys of a unit file."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, list[str]] = defaultdict(list)
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.lstrip().startswith(("#", ";")):
                self._values[key.strip()].append(value.strip())

    def all(self, key: str) -> list[str]:
        """Returns the values of a key that may occur several times."""
        return self._values[key]

    def one(self, key: str) -> str:
        """Returns the value of a key that occurs once."""
        [value] = self._values[key]
        return value


class Root:
    """A copy of the base."""

    def __init__(self, stage: Stage) -> None:
        self.path = stage.directory / "root"
        self._stage = stage
        subprocess.run(["cp", "-a", "--reflink=auto", str(BASE), str(self.path)], check=True)

    def file(self, name: str) -> Path:
        """Returns the path of a file whose absolute name in the root is given."""
        return self.path / name.removeprefix("/")

    def command(self, *words: str, before: str = "") -> list[str]:
        """Returns the command that runs `words` in the root, in a mount and a PID namespace of their own.

        `before` are shell commands that run first, in the same namespaces but outside the root.
        """
        script = f'{before}exec chroot {shlex.quote(str(self.path))} "$@"'
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.path}/proc"]
        return [*isolated, "sh", "-euc", script, "sh", *words]

    def run(self, *words: str) -> tuple[int, str]:
        """Runs a command in the root. Returns its exit status and its output."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        done = subprocess.run(
            self.command(*words), env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        return done.returncode, done.stdout + done.stderr

    def unit(self, name: str) -> Unit:
        """Reads a unit that a package has installed."""
        return Unit(self.file(f"/lib/systemd/system/{name}").read_text())

    def start(self, name: str, unit: Unit) -> "Service":
        """Starts a service as its unit says: with the user, the capability, the state directory and a read-only system.

        The system call filter of the unit is not applied.
        """
        user, state = unit.one("User"), f"/var/lib/{unit.one('StateDirectory')}"
        self.run("install", "-d", "-o", user, "-g", unit.one("Group"), "-m", unit.one("StateDirectoryMode"), state)
        notify = self.file("/run/notify")
        notify.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listening.bind(str(notify))
        notify.chmod(0o666)
        root, kept = shlex.quote(str(self.path)), shlex.quote(str(self.file(state)))
        # ProtectSystem=strict and PrivateTmp.
        before = f"mount --bind {root} {root}; mount --bind {kept} {kept}; mount -o remount,bind,ro {root}; "
        before += f"mount -t tmpfs tmpfs {root}/tmp; mount -t proc proc {root}/proc; "
        capability = unit.one("AmbientCapabilities").removeprefix("CAP_").lower()
        privileges = [
            *("setpriv", f"--reuid={user}", f"--regid={unit.one('Group')}", "--init-groups", "--no-new-privs"),
            *(f"--bounding-set=-all,+{capability}", f"--inh-caps=-all,+{capability}", f"--ambient-caps=+{capability}"),
        ]
        environment = ["env", "-i", "NOTIFY_SOCKET=/run/notify", f"STATE_DIRECTORY={state}", "PATH=/usr/bin:/bin"]
        words = [*environment, *privileges, "sh", "-c", f"umask {unit.one('UMask')}; exec {unit.one('ExecStart')}"]
        return Service(self._stage.start(name, self.command(*words, before=before)), listening)


class Service:
    """A running service."""

    def __init__(self, process: Process, notify: socket.socket) -> None:
        self.process = process
        self._notify = notify

    def ready(self, seconds: float) -> bool:
        """Returns whether the service reports in time that it is ready, as `Type=notify` requires."""
        self._notify.settimeout(seconds)
        try:
            return b"READY=1" in self._notify.recv(4096).split(b"\n")
        except TimeoutError:
            return False

    @property
    def pid(self) -> int:
        """Returns the pid of the program itself, which is a child of the command that made its namespaces."""
        return max(self.process.pids())

    def stop(self) -> int | None:
        """Stops the service as systemd does, and returns its exit status."""
        os.kill(self.pid, 15)
        self.process.wait(10)
        self.process.stop()
        self._notify.close()
        return self.process.exit_status
