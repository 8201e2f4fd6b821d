"""The Debian package installs, starts as its unit says, keeps edits at an upgrade, and can be removed

`make deb` makes the packages, and debootstrap makes a Debian 12 below out/debian, of which each round has a copy. dpkg
installs the package there, its unit is verified, and its program is run as the unit says: with its user, its
capability, its state directory and a read-only system. A socket receives the notification of readiness. Calls pass
through Tidegate with the default configuration, a reload applies an edit, and a package of a higher version is
installed on top. At the end the package is removed and purged, and nothing of it but its user may be left. systemd
itself does not run, so the unit's system call filter is not applied, and an upgrade does not check the configuration.
This demonstration needs root.
"""

import argparse
import os
import re
import signal
import stat
import time
from pathlib import Path

from tidegate_bench import namespace, program, tidegate
from tidegate_bench.debian import Root, bootstrap
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.record import ROOT
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.tidegate import Edge, built

PACKAGES = ROOT / "out" / "packages"
CONFIGURATION, STATE, SERVICE = "/etc/tidegate/tidegate.toml", "/var/lib/tidegate", "tidegate.service"
# A configuration with an error.
WRONG = "/tmp/wrong.toml"
# The ports of the packaged configuration.
EDGE, ADMIN, BACKEND, ADDED = 5060, 8060, 5070, 5071
EDIT = f'[[pool.backend]]                # an edit\nuri = "sip:{LOCALHOST}:{ADDED}"\n[pool.health]'
CALLS, RATE_CPS = 200, 50
READY_S = 10
# systemd rates exposure levels below this value as OK.
EXPOSURE_MAX = 2.5


def package(name: str) -> Path:
    """Returns the package of this name that `make deb` has made."""
    [file] = PACKAGES.glob(f"{name}_[0-9]*.deb")
    return file


def upgraded(file: Path, scratch: Path) -> tuple[Path, str]:
    """Makes a package with the same programs, a higher version and a new default configuration."""
    tree, made = scratch / "upgrade", scratch / "upgrade.deb"
    program.output("dpkg-deb", "--raw-extract", file, tree)
    control = tree / "DEBIAN/control"
    version = re.search(r"^Version: (.*)$", control.read_text(), re.M)
    assert version, "a package has a version"
    higher = f"{version[1]}+upgrade"
    control.write_text(control.read_text().replace(version[0], f"Version: {higher}"))
    configuration = tree / CONFIGURATION.removeprefix("/")
    configuration.write_text(configuration.read_text() + "# New in this version.\n")
    program.output("dpkg-deb", "--root-owner-group", "--build", tree, made)
    return made, higher


class Show(Demonstration):
    ROUNDS = 1
    PROFILE = "release"

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        bootstrap()
        namespace.enter_own()

    def run(self) -> Results:
        file = package("tidegate")
        for round_ in self.rounds:
            print(f"round {round_}: {file.name}")
            with Stage() as stage:
                root = Root(stage)
                higher, version = upgraded(file, stage.directory)
                uas = [built("tidegate", self.profile), "load", "uas", "--bind", f"{LOCALHOST}:{BACKEND}"]
                stage.serve("uas", uas, BACKEND)
                self.install(root, file)
                self.serve(root, stage, "first")
                self.upgrade(root, higher, version)
                key = root.file(f"{STATE}/route.key").read_bytes()
                self.serve(root, stage, "second")
                kept = root.file(f"{STATE}/route.key").read_bytes() == key
                self.expect(kept, "the key that routes calls is the same as before the upgrade")
                self.remove(root)
                self.keep(*stage.directory.glob("*.log"), prefix=f"{round_}-")
        return {"package": file.name}

    def dpkg(self, root: Root, what: str, *words: str) -> None:
        status, said = root.run("dpkg", *words)
        self.expect(status == 0, f"dpkg {what} (status {status})")
        if status:
            print(said)

    def install(self, root: Root, file: Path) -> None:
        for each in (file, package("tidegate-lab")):
            root.file(f"/tmp/{each.name}").write_bytes(each.read_bytes())
            self.dpkg(root, f"installs {each.name}", "--install", f"/tmp/{each.name}")
        _, user = root.run("getent", "passwd", "tidegate")
        fields = user.strip().split(":")
        system = len(fields) == 7 and int(fields[2]) < 1000
        self.expect(system and fields[6] == "/usr/sbin/nologin", f"there is a system user: {user.strip()}")
        status, said = root.run("systemd-analyze", "verify", "--man=no", f"/lib/systemd/system/{SERVICE}")
        self.expect(status == 0 and not said, f"systemd-analyze verify finds no fault in the unit {said.strip()}")
        status, said = root.run("systemctl", "is-enabled", SERVICE)
        self.expect(said.strip() == "enabled", f"the unit is {said.strip()}")
        status, said = root.run("systemd-analyze", "security", "--offline=true", SERVICE)
        exposure = re.search(r"Overall exposure level .*?: ([0-9.]+)", said)
        level = float(exposure[1]) if exposure else 10.0
        self.expect(level < EXPOSURE_MAX, f"systemd-analyze security: exposure level {level} of 10")
        for name in ("tidegate", "tidegate-lab"):
            status, said = root.run(name, "--version")
            self.expect(status == 0, f"{name} runs: {said.strip()}")
        pages = list(root.file("/usr/share/man/man1").glob("tidegate*"))
        self.expect(len(pages) > 1, f"{len(pages)} manual pages")

    def as_user(self, root: Root, command: str) -> tuple[int, str]:
        """Runs a command of the unit as its user. Returns its exit status and the start of its output."""
        status, said = root.run("setpriv", "--reuid=tidegate", "--regid=tidegate", "--init-groups", *command.split())
        return status, " ".join(said.split())[:100]

    def serve(self, root: Root, stage: Stage, name: str) -> None:
        """Starts the service, makes calls through it, reloads an edit, and ends it."""
        unit = root.unit(SERVICE)
        root.file(WRONG).write_text("[listen]\n")
        command = unit.one("ExecStart").replace(CONFIGURATION, WRONG)
        status, said = self.as_user(root, command)
        stays_ended = str(status) == unit.one("RestartPreventExitStatus")
        self.expect(stays_ended, f"{command} ends without a restart (status {status}): {said}")
        service = root.start(f"tidegate-{name}", unit)
        if not self.expect(service.ready(READY_S), f"{unit.one('ExecStart')} reports that it is ready"):
            print(service.process.tail())
            return
        owner, mode = root.file(STATE).stat(), root.file(f"{STATE}/route.key").stat()
        user = Path(f"/proc/{service.pid}").stat().st_uid
        self.expect(user == owner.st_uid != 0, f"Tidegate runs as the user {user}, who owns {STATE}")
        self.expect(not stat.S_IMODE(mode.st_mode) & 0o077, f"no other user may read its key: {oct(mode.st_mode)[-3:]}")
        caller = tidegate.caller(
            stage, f"uac-{name}", f"{LOCALHOST}:{EDGE}", rate_cps=RATE_CPS, calls=CALLS, profile=self.profile
        )
        ended, calls = caller.process.wait(CALLS / RATE_CPS + 60), caller.calls()
        self.expect(ended and calls.created == CALLS and calls.clean, f"calls through Tidegate: {calls}")
        file = root.file(CONFIGURATION)
        if "an edit" not in file.read_text():
            file.write_text(file.read_text().replace("[pool.health]", EDIT, 1))
        check, _ = unit.all("ExecReload")
        for checked, expected in ((CONFIGURATION, 0), (WRONG, 2)):
            status, said = self.as_user(root, check.replace(CONFIGURATION, checked))
            self.expect(status == expected, f"a reload checks {checked} (status {status}): {said}")
        # As the second ExecReload does.
        os.kill(service.pid, signal.SIGHUP)
        edge, added = Edge(EDGE, ADMIN, file), f"{LOCALHOST}:{ADDED}"
        until = time.monotonic() + READY_S
        while not (found := list(edge.metrics().samples("backend_up", backend=added))) and time.monotonic() < until:
            time.sleep(0.1)
        self.expect(bool(found), f"after a reload Tidegate knows the back end of the edit, {added}")
        ended_with = service.stop()
        self.expect(ended_with == 0, f"Tidegate ends when it is asked to (status {ended_with})")

    def upgrade(self, root: Root, file: Path, version: str) -> None:
        edited, state = root.file(CONFIGURATION).read_text(), root.file(STATE).stat().st_uid
        root.file("/tmp/upgrade.deb").write_bytes(file.read_bytes())
        self.dpkg(root, f"upgrades to {version}", "--force-confold", "--install", "/tmp/upgrade.deb")
        _, installed = root.run("dpkg-query", "--show", "--showformat=${Version}", "tidegate")
        self.expect(installed == version, f"version {installed} is installed")
        self.expect(root.file(CONFIGURATION).read_text() == edited, "the edited configuration is kept")
        new = root.file(f"{CONFIGURATION}.dpkg-dist")
        self.expect(new.exists() and "New in this" in new.read_text(), f"the new default lies beside it, {new.name}")
        self.expect(root.file(STATE).stat().st_uid == state, "the state belongs to the same user")

    def remove(self, root: Root) -> None:
        self.dpkg(root, "removes it", "--remove", "tidegate")
        kept = [name for name in (CONFIGURATION, STATE) if root.file(name).exists()]
        gone = not root.file("/usr/bin/tidegate").exists() and not root.file(f"/lib/systemd/system/{SERVICE}").exists()
        self.expect(gone and len(kept) == 2, f"the program and the unit are removed, {kept} are kept")
        self.dpkg(root, "purges it", "--purge", "tidegate", "tidegate-lab")
        for kind in ("passwd", "group"):
            # Another user could get the number, and with it the rights to a TLS key.
            status, entry = root.run("getent", kind, "tidegate")
            self.expect(status == 0, f"the entry in {kind} is kept: {entry.strip()}")
        found = (path.relative_to(root.path) for path in root.path.rglob("*tidegate*"))
        left = [str(path) for path in found if path.parts[0] not in ("proc", "tmp")]
        self.expect(not left, f"nothing is left of the package: {left or 'no file'}")
