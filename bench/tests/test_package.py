import os
import shutil
import subprocess
import unittest
from unittest.mock import Mock

from tests.scratch import Scratch
from tidegate_bench import program
from tidegate_bench.debian import Root, Unit
from tidegate_bench.demonstrations import package
from tidegate_bench.record import ROOT


class UnitTest(unittest.TestCase):
    def test_key_may_occur_several_times(self) -> None:
        unit = Unit("[Service]\n# User=root\nUser=tidegate\nExecStart=/bin/a -c b=1\nFilter=x\nFilter=~y\n")
        self.assertEqual((unit.one("User"), unit.one("ExecStart")), ("tidegate", "/bin/a -c b=1"))
        self.assertEqual((unit.all("Filter"), unit.all("Absent")), (["x", "~y"], []))
        with self.assertRaises(ValueError):
            unit.one("Filter")

    def test_packaged_unit_has_the_keys_that_a_start_needs(self) -> None:
        unit = Unit((ROOT / "packaging/tidegate.service").read_text())
        for key in ("User", "Group", "StateDirectory", "StateDirectoryMode", "UMask", "ExecStart"):
            self.assertTrue(unit.one(key), key)
        self.assertEqual(unit.one("Type"), "notify")
        # The cause of status 1 may be temporary, such as a missing address. systemd tries again without a limit.
        self.assertEqual((unit.one("RestartPreventExitStatus"), unit.one("StartLimitIntervalSec")), ("2", "0"))

    def test_packaged_unit_starts_nothing_before_the_process_whose_status_prevents_a_restart(self) -> None:
        unit = Unit((ROOT / "packaging/tidegate.service").read_text())
        # systemd compares RestartPreventExitStatus only with the status of the process of ExecStart.
        self.assertEqual(unit.all("ExecStartPre") + unit.all("ExecCondition"), [])

    def test_packaged_unit_checks_the_configuration_before_a_reload(self) -> None:
        unit = Unit((ROOT / "packaging/tidegate.service").read_text())
        check, signal = unit.all("ExecReload")
        self.assertEqual(check, unit.one("ExecStart").replace(" run ", " check "))
        self.assertIn("kill -HUP", signal)


class MaintainerScriptTest(Scratch):
    """Runs postinst with commands that only note their arguments, on a machine with or without systemd."""

    SYSCTL = "systemd-sysctl --prefix=net/core/rmem_max --prefix=net/core/optmem_max"
    ACTIVE, RESTART = "systemctl --quiet is-active tidegate.service", "systemctl restart"
    CHANGED = "systemctl show --property=DropInPaths --value tidegate.service"
    UNIT = "systemctl show --property=FragmentPath --value tidegate.service"

    def setUp(self) -> None:
        super().setUp()
        self.configuration = self.folder / "tidegate.toml"
        self.configuration.touch()
        (self.folder / "system").mkdir()
        for name in ("adduser", "systemd-sysctl", "setpriv"):
            self.command(name, 0)
        self.service("/lib/systemd/system/tidegate.service")

    def command(self, name: str, status: int, does: str = "") -> None:
        file = self.folder / name
        file.write_text(f'#!/bin/sh\necho {name} "$@" >> {self.folder}/log\n{does}\nexit {status}\n')
        file.chmod(0o755)

    def service(self, unit: str, addition: str = "") -> None:
        """Makes `systemctl` tell that the service runs, with this unit and this addition to it."""
        self.command("systemctl", 0, f"case $2 in *DropInPaths) echo {addition} ;; *FragmentPath) echo {unit} ;; esac")

    def configure(self, *words: str) -> tuple[int, list[str]]:
        """Returns the exit status of `postinst configure`, and the commands that it ran after `adduser`."""
        log = self.folder / "log"
        log.unlink(missing_ok=True)
        script = (ROOT / "packaging/debian/postinst").read_text()
        for found, here in (
            ("/run/systemd/system", self.folder / "system"),
            ("/lib/systemd/systemd-sysctl", self.folder / "systemd-sysctl"),
            ("/etc/tidegate/tidegate.toml", self.configuration),
            ("#DEBHELPER#", "systemctl restart"),
        ):
            self.assertIn(found, script)
            script = script.replace(found, str(here))
        environment = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        command = ["sh", "-c", script, "postinst", "configure", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        [user, *commands] = log.read_text().splitlines()
        self.assertIn("adduser --system --group", user)
        return done.returncode, commands

    def check(self) -> str:
        return f"setpriv --reuid=tidegate --regid=tidegate --init-groups /usr/bin/tidegate check {self.configuration}"

    def test_installation_applies_the_limits_of_the_kernel(self) -> None:
        self.assertEqual(self.configure(""), (0, [self.SYSCTL, self.RESTART]))
        self.command("systemd-sysctl", 1)
        self.assertEqual(self.configure(""), (0, [self.SYSCTL, self.RESTART]))
        keys = {prefix.rpartition("=")[2].replace("/", ".") for prefix in self.SYSCTL.split()[1:]}
        lines = (ROOT / "packaging/sysctl.conf").read_text().splitlines()
        self.assertEqual({line.split(" = ")[0] for line in lines if " = " in line}, keys)

    def test_upgrade_checks_the_configuration_before_it_restarts_the_service(self) -> None:
        before = [self.SYSCTL, self.ACTIVE, self.CHANGED, self.UNIT]
        self.assertEqual(self.configure("0.1"), (0, [*before, self.check(), self.RESTART]))
        self.service("/usr/lib/systemd/system/tidegate.service")
        self.command("setpriv", 2)
        self.assertEqual(self.configure("0.1"), (1, [*before, self.check()]))

    def test_upgrade_checks_nothing_if_the_service_has_been_changed(self) -> None:
        self.command("setpriv", 2)
        unit, own = "/lib/systemd/system/tidegate.service", "/etc/systemd/system/tidegate.service"
        self.service(unit, addition=f"{own}.d/override.conf")
        self.assertEqual(self.configure("0.1"), (0, [self.SYSCTL, self.ACTIVE, self.CHANGED, self.RESTART]))
        # After `systemctl edit --full`.
        self.service(own)
        self.assertEqual(self.configure("0.1"), (0, [self.SYSCTL, self.ACTIVE, self.CHANGED, self.UNIT, self.RESTART]))

    def test_upgrade_checks_nothing_if_no_process_would_be_lost(self) -> None:
        self.command("systemctl", 3)
        _, commands = self.configure("0.1")
        self.assertEqual(commands, [self.SYSCTL, self.ACTIVE, self.RESTART])
        self.configuration.unlink()
        self.assertEqual(self.configure("0.1")[1], [self.SYSCTL, self.RESTART])
        (self.folder / "system").rmdir()
        self.assertEqual(self.configure("0.1")[1], [self.RESTART])

    def test_purge_keeps_the_group_that_may_read_a_key(self) -> None:
        script = (ROOT / "packaging/debian/postrm").read_text()
        self.assertNotIn("deluser", script)
        self.assertNotIn("delgroup", script)


class RootTest(Scratch):
    def test_commands_are_quoted(self) -> None:
        root = Root.__new__(Root)
        root.path = self.folder / "a root"
        words = root.command("echo", "$HOME", before="mount x; ")
        self.assertEqual(words[-3:], ["sh", "echo", "$HOME"])
        self.assertIn(f"mount x; exec chroot '{root.path}' \"$@\"", words)
        self.assertEqual(root.file("/etc/a"), root.path / "etc/a")


@unittest.skipUnless(shutil.which("dpkg-deb"), "this is not Debian")
class UpgradeTest(Scratch):
    def test_upgrade_has_a_higher_version_and_another_default(self) -> None:
        tree, made = self.folder / "tree", self.folder / "tidegate_1.2-1_all.deb"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "etc/tidegate").mkdir(parents=True)
        (tree / "etc/tidegate/tidegate.toml").write_text("[admin]\n")
        control = "Package: tidegate\nVersion: 1.2-1\nArchitecture: all\nMaintainer: A <a@b>\nDescription: it\n"
        (tree / "DEBIAN/control").write_text(control)
        program.output("dpkg-deb", "--build", tree, made)
        scratch = self.folder / "scratch"
        scratch.mkdir()
        higher, version = package.upgraded(made, scratch)
        self.assertEqual(program.output("dpkg-deb", "--field", higher, "Version").strip(), version)
        # Ends the test if the version is not higher.
        program.output("dpkg", "--compare-versions", version, "gt", "1.2-1")
        program.output("dpkg-deb", "--extract", higher, self.folder / "new")
        text = (self.folder / "new/etc/tidegate/tidegate.toml").read_text()
        self.assertEqual(text, "[admin]\n# New in this version.\n")

    def test_one_package_has_the_name(self) -> None:
        self.replace("tidegate_bench.demonstrations.package.PACKAGES", self.folder)
        for name in ("tidegate_1-1_all.deb", "tidegate-lab_1-1_all.deb", "tidegate-dbgsym_1-1_all.deb"):
            (self.folder / name).touch()
        self.assertEqual(package.package("tidegate").name, "tidegate_1-1_all.deb")
        self.assertEqual(package.package("tidegate-lab").name, "tidegate-lab_1-1_all.deb")


class ServiceTest(Scratch):
    def test_dpkg_failure_is_a_missed_condition(self) -> None:
        show, root = Mock(), Mock()
        root.run.return_value = (1, "broken")
        package.Show.dpkg(show, root, "installs it", "--install", "x")
        show.expect.assert_called_once_with(False, "dpkg installs it (status 1)")
        self.assertIn("broken", self.printed)
