"""Phones behind a real address translator call, the back end hangs up, and its BYEs reach them

There are three network namespaces: phones with private addresses, a router that translates them to other ports (nft
masquerade), and Tidegate with a back end outside. Nothing outside has a route to the private addresses, so a BYE that
goes to the Contact of a phone is lost. SIPp makes 100 calls, and Baresip some more. The test also checks that the
phones are really behind a translator: a caller that does not ask for rport gets no response.
"""

import argparse
import re
import shutil
import sys
import time
from dataclasses import asdict
from typing import Any

from tidegate_bench import namespace, sipp
from tidegate_bench.baresip import Baresip
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.namespace import Namespace, link
from tidegate_bench.process import Cores, Stage
from tidegate_bench.record import Record
from tidegate_bench.tidegate import built

PROXY, BACKEND, ROUTER = "192.0.2.1", "192.0.2.2", "192.0.2.9"
PHONE, GATEWAY = "10.64.0.2", "10.64.0.1"
PORTS = "40000-49999"
CALLS, RATE_CPS = 100, 50
BARESIP_CALLS = 3
TALK = ("-d", "300")

CONFIGURATION = f"""\
[server]
state_dir = "STATE"

[admin]
address = "off"

[[listen]]
transport = "udp"
address = "{PROXY}:5060"

[[pool]]
name = "app"
[[pool.backend]]
uri = "sip:{BACKEND}:5070"
"""
PHONE_FILES = {
    "config": f"""\
poll_method epoll
sip_listen {PHONE}:5062
ctrl_tcp_listen 127.0.0.1:4444
module_path /usr/lib/baresip/modules
module_tmp uuid.so
module_tmp account.so
module g711.so
module ausine.so
module aufile.so
module_app menu.so
module_app ctrl_tcp.so
audio_source ausine,440
ausrc_srate 48000
ausrc_channels 2
audio_player aufile,/dev/null
audio_alert aufile,/dev/null
""",
    "accounts": f'<sip:alice@example.test>;outbound="sip:{PROXY}:5060";regint=0\n',
}


class Networks:
    """The network of the phones, the router, and the outside network, which is that of this process."""

    def __init__(self, stage: Stage) -> None:
        self.phones, self.router = Namespace(stage, "phones"), Namespace(stage, "router")
        link(("phone", PHONE, self.phones), ("inside", GATEWAY, self.router))
        link(("outside", f"{PROXY} {BACKEND}", None), ("wan", ROUTER, self.router))
        self.phones.run("ip", "route", "add", "default", "via", GATEWAY)
        self.router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        rules = "add table ip nat; add chain ip nat out { type nat hook postrouting priority srcnat; }; "
        rules += f"add rule ip nat out oifname wan meta l4proto udp masquerade to :{PORTS} random"
        self.router.run("nft", rules)


def call(
    stage: Stage, networks: Networks, name: str, scenario: str, port: int, calls: int, seconds: int = 20
) -> sipp.Calls:
    """Makes calls from behind the router, and returns their outcome."""
    words = sipp.command(stage, name, scenario, port, PHONE, options=TALK)
    words += ["-r", str(RATE_CPS), "-m", str(calls), "-l", str(calls), "-timeout", f"{seconds}s", "-s", "service"]
    process = networks.phones.start(name, [*words, f"{PROXY}:5060"])
    process.wait(seconds + 10)
    return sipp.made_by(stage, name, process, port).calls()


def baresip(stage: Stage, networks: Networks) -> tuple[int, int]:
    """Makes calls with Baresip. Returns the number of established calls, and of calls that the other side ended."""
    with networks.phones.entered():
        phone = Baresip(stage, "baresip", PHONE_FILES, 4444)
    established = closed = 0
    for _ in range(BARESIP_CALLS):
        phone.command("dial", f"sip:service@{PROXY}")
        established += phone.event("CALL_ESTABLISHED", 5) is not None
        closed += phone.event("CALL_CLOSED", 5) is not None
    return established, closed


def one_run(record: Record, round_: int) -> dict[str, Any]:
    print(f"round {round_}")
    begun = time.monotonic()
    with Stage() as stage:
        networks = Networks(stage)
        messages = stage.directory / "backend.messages"
        options = (*TALK, "-trace_msg", "-message_file", str(messages))
        words = sipp.command(stage, "backend", "uas-hangs-up", 5070, BACKEND, options=options)
        backend = sipp.made_by(stage, "backend", stage.start("backend", words), 5070)
        configuration = stage.directory / "tidegate.toml"
        configuration.write_text(CONFIGURATION.replace("STATE", f"{stage.directory}/state"))
        edge = stage.serve("tidegate", [built("tidegate"), "run", "--config", str(configuration)], 5060)
        cores = Cores(edge)
        calls = call(stage, networks, "sipp", "uac-translated", 5061, CALLS)
        established, closed = baresip(stage, networks)
        [used] = cores.used()
        exchanged = messages.read_text(errors="replace")
        served = backend.finish()
        # A caller without rport: responses go to the port in its Via, which is not that of the router.
        stage.start("silent", sipp.command(stage, "silent", "uas-hangs-up", 5070, BACKEND, options=TALK))
        lost = call(stage, networks, "without-rport", "uac-hung-up", 5063, 1, seconds=3)
        drops = edge.drops()
        logs = ("tidegate.log", "sipp.errors", "backend.errors", "baresip.log")
        record.keep(*(stage.directory / name for name in logs))
    contacts = set(re.findall(r"^Contact: <sip:[^@>]*@([0-9.]+)", exchanged, re.M))
    byes = set(re.findall(r"^BYE sip:[^@]*@([0-9.]+)", exchanged, re.M))
    record.expect(calls.clean and calls.created == CALLS, f"SIPp, {CALLS} calls: {calls}")
    record.expect(
        established == closed == BARESIP_CALLS,
        f"Baresip, {BARESIP_CALLS} calls: {established} set up, {closed} ended by the back end",
    )
    wanted = CALLS + BARESIP_CALLS
    record.expect(served.clean and served.created == wanted, f"the back end, {wanted} calls: {served}")
    record.expect(PHONE in contacts and byes == {PHONE}, f"every BYE was for the private address: {byes}")
    record.expect(lost.successful == 0, f"without rport a call gets no answer: {lost}")
    record.expect(drops == 0, f"Tidegate's sockets dropped {drops} datagrams")
    row = {"round": round_, **asdict(calls), "baresip_set_up": established, "baresip_hung_up": closed}
    row |= {"backend_successful": served.successful, "tidegate_cores": round(used, 3), "drops": drops}
    return row | {"seconds": round(time.monotonic() - begun, 1)}


class Show(Demonstration):
    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        namespace.enter_own()
        missing = [program for program in ("nft", "ip", "nsenter", "sipp", "baresip") if not shutil.which(program)]
        if missing:
            sys.exit(f"{', '.join(missing)}: missing; `scripts/setup nat` installs it")

    def run(self) -> Results:
        return {"runs": self.rows("runs", [one_run(self, round_) for round_ in self.rounds])}
