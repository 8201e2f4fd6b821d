"""Each recipe of docs/cookbook.md works with its own files and real peers, such as Kamailio and Asterisk

A network namespace has all addresses of the recipes, so that the files of docs/cookbook run unchanged. OpenSIPS is
tested if it is installed (Debian 12 has no package). Without root, the demonstration also makes a user namespace.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate_bench import kamailio, namespace, sipp
from tidegate_bench.baresip import Baresip
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Process, Stage
from tidegate_bench.record import ROOT, Record
from tidegate_bench.tidegate import Edge, built

FILES = ROOT / "docs" / "cookbook"
# Where `scripts/setup cookbook` unpacks the Asterisk of Debian 11.
ASTERISK_ROOT = ROOT / "out" / "peers" / "asterisk"
MODULES = """
res_pjsip* res_pjproject* res_sorcery* pbx_config* app_dial* res_rtp_asterisk* chan_pjsip* codec_ulaw* bridge_simple*
res_timing_timerfd* app_echo* bridge_builtin* bridge_native* res_statsd* res_http_websocket* res_geolocation*
"""
OUTSIDE = "203.0.113.10"
PHONES, CARRIER, RESELLER, STRANGER = "198.51.100.2", "192.0.2.7", "192.0.2.8", "192.0.2.99"
GATEWAY = "192.0.2.20"
# Without [admin], the admin interface has this port of 127.0.0.1.
ADMIN_PORT = 8060
SERVERS = ("10.0.0.21", "10.0.0.22")
OTHERS = ("10.0.0.31", *(f"10.{centre}.0.{host}" for centre in (1, 2, 3) for host in (21, 31)))
ADDRESSES = (OUTSIDE, "10.0.0.10", PHONES, "198.51.100.3", CARRIER, RESELLER, STRANGER, GATEWAY, *SERVERS, *OTHERS)


def lay_addresses() -> None:
    for address in ADDRESSES:
        namespace.run("ip", "address", "add", f"{address}/32", "dev", "lo")
    # The kernel sends from the address on the same side, as on a machine with two networks.
    for network, source in (("192.0.2.0/24", OUTSIDE), ("198.51.100.0/24", OUTSIDE), ("10.0.0.0/8", "10.0.0.10")):
        namespace.run("ip", "route", "add", network, "dev", "lo", "src", source)


class Scene:
    """The peers of one run of a recipe."""

    def __init__(self, record: Record, recipe: str, seed: int) -> None:
        self.record, self.recipe, self.seed = record, recipe, seed
        self.stage = Stage()

    def __enter__(self) -> "Scene":
        self.stage.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for log in (*self.stage.directory.glob("*.log"), *self.stage.directory.glob("*.errors")):
            kept = self.record.directory / f"{self.recipe}-{self.seed}-{log.name}"
            kept.write_bytes(log.read_bytes())
        self.stage.__exit__()

    def expect(self, held: bool, condition: str) -> None:
        self.record.expect(held, f"{self.recipe}, seed {self.seed}: {condition}")

    def _listening(self, name: str, process: Process, address: str, port: int = 5060) -> Process:
        deadline = time.monotonic() + 20
        while _free(address, port):
            if not process.running() or time.monotonic() > deadline:
                sys.exit(f"{name} does not listen at {address}:{port}:\n{process.tail()}")
            time.sleep(0.05)
        return process

    def tidegate(self, file: str, state: Path | None = None, address: str = OUTSIDE) -> Process:
        """Runs a file of the cookbook unchanged, except for the state directory."""
        text = (FILES / file).read_text()
        state = state or self.stage.directory / "state"
        copy = self.stage.directory / file
        for usual in ("/var/lib/tidegate", "/tmp/tidegate-overload"):
            text = text.replace(usual, str(state))
        copy.write_text(text)
        process = self.stage.start(file.removesuffix(".toml"), [built("tidegate"), "run", "--config", str(copy)])
        return self._listening("tidegate", process, address)

    def kamailio(self, file: str, address: str, **defines: str) -> Process:
        words = kamailio.command(self.stage, FILES / file, address, 5060, defines, allocator=None)
        return self._listening("kamailio", self.stage.start(f"kamailio-{address}", words), address)

    def callee(self, host: str, scenario: str = "uas-record-route") -> sipp.Sipp:
        name, traced = f"callee-{host}", ("-trace_msg", "-message_file", str(self.messages(host)))
        process = self.stage.start(name, sipp.command(self.stage, name, scenario, 5060, host, options=traced))
        return sipp.made_by(self.stage, name, self._listening(name, process, host), 5060)

    def messages(self, host: str) -> Path:
        return self.stage.directory / f"callee-{host}-messages.log"

    def called_by_tidegate(self, host: str) -> None:
        """Expects that every INVITE at a callee came from Tidegate's public address."""
        invites = self.messages(host).read_text().split("\nINVITE ")[1:]
        vias = [next(line for line in invite.splitlines() if line.startswith("Via:")) for invite in invites]
        held = bool(vias) and all(f" {OUTSIDE}:5060;" in via for via in vias)
        self.expect(held, f"{len(vias)} INVITEs reached {host} from {OUTSIDE}")

    def caller(
        self,
        name: str,
        host: str,
        user: str,
        domain: str,
        *,
        calls: int,
        rate: float = 20,
        hold_ms: int = 200,
        scenario: str = "uac-domain",
        port: int = 5062,
        target: str = OUTSIDE,
    ) -> sipp.Sipp:
        words = sipp.command(self.stage, name, scenario, port, host)
        words += ["-s", user, "-key", "domain", domain, "-key", "contact", f"{PHONES}:5060"]
        words += ["-r", str(rate), "-m", str(calls), "-l", str(calls), "-d", str(hold_ms)]
        process = self.stage.start(name, [*words, "-timeout", "60s", f"{target}:5060"])
        return sipp.made_by(self.stage, name, process, port)

    def succeed(self, what: str, calling: sipp.Sipp, calls: int) -> None:
        """Expects that all calls succeed without unexpected messages."""
        ended = calling.process.wait(70)
        found = calling.calls()
        self.expect(ended and found.clean and found.created == calls, f"{what}: {found}")

    def ctl(self, command: str, *arguments: str) -> str:
        """Runs a `tidegate ctl` command of the cookbook, and keeps its output."""
        done = subprocess.run(
            [built("tidegate"), "ctl", command, *arguments], capture_output=True, text=True, check=False
        )
        kept = self.record.directory / f"{self.recipe}-{self.seed}-{command}.txt"
        kept.write_text(done.stdout)
        return done.stdout


def _free(address: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def registrar(scene: Scene) -> None:
    for address in SERVERS:
        scene.kamailio("registrar-kamailio.cfg", address)
    scene.callee(PHONES)
    scene.callee(GATEWAY)
    scene.tidegate("registrar.toml")
    users = 40 + scene.seed
    registering = scene.caller(
        "registering", PHONES, "user", "example.com", calls=users, scenario="uac-register-domain", rate=100
    )
    scene.succeed("users register", registering, users)
    calling = scene.caller("calling", "198.51.100.3", "user", "example.com", calls=users)
    scene.succeed("a call to each user finds the server that has the registration", calling, users)
    numbers = scene.caller("numbers", "198.51.100.3", "+1555", "numbers.example.com", calls=users)
    scene.succeed("calls to numbers reach the gateway", numbers, users)
    scene.called_by_tidegate(PHONES)
    scene.called_by_tidegate(GATEWAY)
    shown = scene.ctl("backends")
    scene.expect(
        shown.count("kamailio-1") >= 2 and " down" not in shown,
        "ctl backends shows each server in both pools, none down",
    )


def phones(scene: Scene) -> None:
    for address in SERVERS:
        scene.kamailio("registrar-kamailio.cfg", address)
    file = "registrar.toml"
    edge = Edge(5060, ADMIN_PORT, FILES / file, scene.tidegate(file))
    alice, bob = (start_phone(scene, *of) for of in (("alice", PHONES, 4444), ("bob", "198.51.100.3", 4445)))
    for phone in (alice, bob):
        scene.expect(phone.registered(), f"{phone.name} registers")
    for caller, callee in ((alice, bob), (bob, alice)):
        what = f"{caller.name} calls {callee.name}"
        caller.command("dial", f"sip:{callee.name}@example.com")
        call = caller.event("CALL_ESTABLISHED")
        scene.expect(bool(call and callee.event("CALL_ESTABLISHED")), f"{what}: established")
        shown = scene.ctl("call", (call or {}).get("id", ""))
        scene.expect(
            shown.startswith("established;") and "pool registrars" in shown,
            f"{what}: ctl call shows the call at its registrar",
        )
        # The callee hangs up: its BYE goes to the caller by the recorded routes.
        callee.command("hangup")
        scene.expect(caller.event("CALL_CLOSED") is not None, f"{what}: ended by {callee.name}")
        callee.event("CALL_CLOSED")
    # At least the INVITE of each call.
    by_path = edge.metrics().total("registered_flow_requests")
    scene.expect(by_path >= 2, f"{by_path} requests go to the phones on the flows of their registrations")


def start_phone(scene: Scene, name: str, address: str, control: int) -> Baresip:
    replaced = {"alice": name, PHONES: address, ":4444": f":{control}"}
    files = {}
    for file, name_in_home in (("baresip.conf", "config"), ("baresip-accounts.conf", "accounts")):
        text = (FILES / file).read_text()
        for old, new in replaced.items():
            text = text.replace(old, new)
        files[name_in_home] = text
    return Baresip(scene.stage, name, files, control)


def asterisk(scene: Scene) -> None:
    for address in SERVERS:
        start_asterisk(scene, address)
    scene.callee(PHONES)
    scene.tidegate("asterisk.toml")
    # The scenario counts calls from 1: the numbers are 101 and 201.
    for number, what in (("10", "answers a call"), ("20", "calls a peer through Tidegate")):
        for turn in range(4):
            calling = scene.caller(
                f"calling-{number}-{turn}", "198.51.100.3", number, OUTSIDE, calls=1, hold_ms=1500, port=5070 + turn
            )
            scene.succeed(f"Asterisk {what}", calling, 1)
    scene.called_by_tidegate(PHONES)


def start_asterisk(scene: Scene, address: str) -> None:
    """Runs the installed Asterisk, or the one from `scripts/setup cookbook`, with the files of the cookbook."""
    home = scene.stage.directory / f"asterisk-{address}"
    for folder in ("etc", "var", "data", "run", "log", "spool"):
        (home / folder).mkdir(parents=True)
    unpacked = not shutil.which("asterisk")
    root = ASTERISK_ROOT if unpacked else Path("/")
    modules = next(root.glob("usr/lib/**/asterisk/modules"))
    (home / "etc/asterisk.conf").write_text(f"""\
[directories]
astetcdir => {home}/etc
astmoddir => {modules}
astvarlibdir => {home}/var
astdbdir => {home}/var
astkeydir => {home}/var
astdatadir => {root}/usr/share/asterisk
astagidir => {home}/data
astspooldir => {home}/spool
astrundir => {home}/run
astlogdir => {home}/log
[options]
documentation_language = en_US
""")
    wanted = [path.name for pattern in MODULES.split() for path in modules.glob(f"{pattern}.so")]
    lines = "".join(f"load = {name}\n" for name in wanted)
    (home / "etc/modules.conf").write_text(f"[modules]\nautoload = no\n{lines}")
    (home / "etc/logger.conf").write_text("[logfiles]\nconsole = notice,warning,error\n")
    pjsip = (FILES / "pjsip.conf").read_text().replace("10.0.0.21", address)
    (home / "etc/pjsip.conf").write_text(pjsip)
    shutil.copy(FILES / "extensions.conf", home / "etc")
    program = str(root / "usr/sbin/asterisk") if unpacked else "asterisk"
    libraries = [f"LD_LIBRARY_PATH={root}/usr/lib:{root}/usr/lib/x86_64-linux-gnu"]
    process = scene.stage.start(
        f"asterisk-{address}",
        ["env", *(libraries if unpacked else []), program, "-f", "-C", str(home / "etc/asterisk.conf")],
    )
    scene._listening("asterisk", process, address)
    time.sleep(2)


def opensips(scene: Scene) -> None:
    for address in SERVERS:
        file = scene.stage.directory / f"opensips-{address}.cfg"
        # OPENSIPS_MODULES names the modules of an OpenSIPS that was built by hand.
        modules = os.environ.get("OPENSIPS_MODULES")
        path = f'mpath="{modules}/"\n' if modules else ""
        text = (FILES / "opensips.cfg").read_text().replace("10.0.0.21", address)
        file.write_text(path + text)
        process = scene.stage.start(
            f"opensips-{address}", ["opensips", "-F", "-f", str(file), "-w", str(scene.stage.directory)]
        )
        scene._listening("opensips", process, address)
    scene.callee(GATEWAY)
    scene.tidegate("opensips.toml")
    calls = 40 + scene.seed
    calling = scene.caller("calling", "198.51.100.3", "user", "example.com", calls=calls)
    scene.succeed("calls reach the gateway through Tidegate", calling, calls)
    scene.called_by_tidegate(GATEWAY)


def trunks(scene: Scene) -> None:
    for address in SERVERS:
        scene.kamailio("trunks-kamailio.cfg", address)
    scene.callee("10.0.0.31")
    scene.callee(CARRIER)
    scene.tidegate("trunks.toml")
    carrier = scene.caller("carrier", CARRIER, "c", OUTSIDE, calls=200, rate=100)
    reseller = scene.caller("reseller", RESELLER, "r", OUTSIDE, calls=100, rate=50)
    stranger = scene.caller("stranger", STRANGER, "s", OUTSIDE, calls=20, rate=20)
    scene.succeed("the carrier's 100 calls/s pass", carrier, 200)
    for other in (reseller, stranger):
        other.process.wait(70)
    passed = reseller.calls().successful
    # The limit is 10 calls at once and 5 a second. The calls come within two seconds.
    scene.expect(15 <= passed <= 25, f"of 100 calls of the reseller in 2 s, {passed} pass")
    rejected = stranger.calls()
    scene.expect(rejected.failed == 20, f"a stranger's calls are rejected: {rejected}")
    errors = (scene.stage.directory / "stranger.errors").read_text()
    scene.expect("SIP/2.0 404" in errors and "no route" in errors, "the stranger's calls get 404, no route")
    outgoing = scene.caller("outgoing", "10.0.0.31", "o", "192.0.2.7", calls=20, port=5064, target="10.0.0.21")
    scene.succeed("calls to the carrier leave through Tidegate", outgoing, 20)
    scene.called_by_tidegate(CARRIER)


def data_centres(scene: Scene) -> None:
    servers = {
        where: scene.kamailio("data-centres-kamailio.cfg", f"{where}.21", TO=f'"sip:{where}.31:5060"')
        for where in ("10.1.0", "10.2.0", "10.3.0")
    }
    callees = {where: scene.callee(f"{where}.31") for where in servers}
    states = [scene.stage.directory / f"state-{dc}" for dc in "ab"]
    active = scene.tidegate("data-centre-a.toml", states[0])
    # The keys are copied, as the cookbook says.
    states[1].mkdir()
    shutil.copy(states[0] / "route.key", states[1])
    held = scene.caller("held", PHONES, "h", OUTSIDE, calls=40, hold_ms=6000)
    time.sleep(4)
    active.stop(first=signal.SIGKILL)
    scene.tidegate("data-centre-b.toml", states[1])
    scene.succeed("calls set up in data centre A end in data centre B", held, 40)
    counts = {where: callee.calls().created for where, callee in callees.items()}
    scene.expect(counts["10.1.0"] == 40, f"while A serves, its own server has the calls: {counts}")
    for gone, taker in ((None, "10.2.0"), ("10.2.0", "10.1.0"), ("10.1.0", "10.3.0")):
        if gone:
            servers[gone].stop(first=signal.SIGKILL)
            time.sleep(1.5)
        before = {where: callee.calls().created for where, callee in callees.items()}
        name = f"after-{gone or 'switch'}"
        calling = scene.caller(name, PHONES, "n", OUTSIDE, calls=40, port=5064)
        scene.succeed(f"new calls at data centre B after the failure of {gone or 'no server'}", calling, 40)
        time.sleep(1.2)
        taken = callees[taker].calls().created - before[taker]
        scene.expect(taken == 40, f"{taken} of 40 calls went to {taker}")


def overload(scene: Scene) -> None:
    """Runs the commands of the cookbook at four times the load that the emulated server carries, for ten seconds."""
    here, calls = "127.0.0.1", 1600
    words = sipp.command(scene.stage, "callee", "uas", 5070, here)
    scene._listening("callee", scene.stage.start("callee", words), here, 5070)
    scene.tidegate("overload.toml", address=here)
    words = sipp.command(scene.stage, "caller", str(FILES / "overload-caller.xml"), 5080, here)
    words += ["-r", "160", "-m", str(calls), "-l", str(calls), "-timeout", "90s", f"{here}:5060"]
    calling = sipp.made_by(scene.stage, "caller", scene.stage.start("caller", words), 5080)
    time.sleep(6)
    busy = json.loads(scene.ctl("overload", "--json"))["shards"][0]
    rates, limit = busy["last_second"]["calls"], busy["limit"]["session"]["kind"]
    ended = calling.process.wait(100)
    found = calling.calls()
    scene.expect(ended and found.created == calls and not found.unexpected, f"the caller ends as expected: {found}")
    carried = rates["admitted"]
    scene.expect(25 <= carried <= 50 and limit == "window", f"a {limit} admits {carried:.0f} calls/s")
    scene.expect(rates["arrived"] >= 120, f"{rates['arrived']:.0f} INVITEs/s arrive")
    new = json.loads(scene.ctl("status", "--json"))["shards"][0]["new_calls"]
    parts = new["dropped_in_kernel"] + new["repeated"] + new["admitted"] + new["rejected"]
    scene.expect(parts == new["arrived"], f"the counts add up to the arrived INVITEs: {new}")
    answered = new["admitted"] + new["rejected"]
    told = f"{answered} calls got a response, {found.successful} by the caller's count"
    scene.expect(answered == found.successful, told)
    # The last retransmissions may still be in a buffer when the caller ends.
    sent = calls + found.retransmissions
    scene.expect(0.98 * sent <= new["arrived"] <= sent, f"{new['arrived']} INVITEs arrived of {sent} that were sent")
    scene.expect(new["dropped_in_kernel"] > 0, "some INVITEs are dropped unread")
    shown = scene.ctl("rejections")
    scene.expect("kernel" in shown and max(map(len, shown.splitlines())) <= 100, "ctl rejections fits a terminal")


RECIPES: dict[str, Callable[[Scene], None]] = {
    "registrar": registrar,
    "phones": phones,
    "asterisk": asterisk,
    "opensips": opensips,
    "trunks": trunks,
    "data-centres": data_centres,
    "overload": overload,
}


class Show(Demonstration):
    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--recipe", choices=RECIPES, help="run only this recipe")

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        namespace.enter_own()
        lay_addresses()

    def run(self) -> Results:
        results: dict[str, Any] = {}
        for name, recipe in RECIPES.items():
            if self.options.recipe not in (None, name):
                continue
            if name == "opensips" and not shutil.which("opensips"):
                print("  not tested: opensips (not installed; Debian 12 has no package)")
                results[name] = "not tested"
                continue
            for seed in self.rounds:
                with Scene(self, name, seed) as scene:
                    recipe(scene)
            results[name] = "tested"
        return {"recipes": results}
