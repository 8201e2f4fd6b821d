"""Phones behind a real address translator call and are called, and every request of the other side reaches them

There are three network namespaces: phones with private addresses, a router that translates them to other ports (nft
masquerade), and Tidegate with a back end outside. Nothing outside has a route to the private addresses, so a request
that goes to the Contact of a phone is lost.

First, SIPp makes 100 calls, and Baresip some more. The back end hangs up, and its BYEs reach the phones. The test also
checks that the phones are really behind a translator: a caller that does not ask for rport gets no response.

Then four Baresip phones register through Tidegate at a Kamailio, which stores the Path: alice over UDP, bob over TCP,
dora over TLS, and carol over UDP without keep-alives. dora checks the certificate of Tidegate. alice calls bob and
dora, and they call alice. They hold and resume the call, and transfer it to desk, a phone beside Kamailio. desk calls
the phones after a restart of Tidegate, after the bindings of the router have expired, after the phones have stopped,
and after a restart with the listeners in another order. A table shows what each call gets, which must agree with the
table in docs/guide/connections.md.
"""

import argparse
import re
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from tidegate_bench import kamailio, namespace, sipp, tidegate
from tidegate_bench.access import Certificate
from tidegate_bench.baresip import ESTABLISHED, Baresip, phone_files
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.namespace import Namespace, link
from tidegate_bench.process import Cores, Stage
from tidegate_bench.record import ROOT, Record
from tidegate_bench.sockets import LOCALHOST, free_port
from tidegate_bench.tidegate import Edge, built

PROXY, BACKEND, DESK, ROUTER = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.9"
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
# Kamailio and Tidegate have different ports, so that the port of Tidegate shows when it has started.
REGISTRAR_PORT = 5080
REGISTERED_CONFIGURATION = f"""\
[server]
state_dir = "STATE"

[admin]
address = "{LOCALHOST}:ADMIN"

[[listen]]
transport = "udp"
address = "{PROXY}:5060"

[[listen]]
transport = "tcp"
address = "{PROXY}:5060"

[[listen]]
transport = "tls"
address = "{PROXY}:5061"
CERTIFICATE

[[pool]]
name = "registrar"
# carol does not list `path` in Supported.
path = "always"
[[pool.backend]]
uri = "sip:{BACKEND}:{REGISTRAR_PORT}"
"""
DOMAIN = "example.test"

# The router keeps a UDP binding for this time after the last datagram. alice sends a keep-alive every 3.2 to 4 s, as
# Kamailio asks it to (`flow_timer` in bench/kamailio-registrar.cfg).
BINDING_S = 10
SILENCE_S = 15
# carol registers again after nine tenths of this time. Until then the test waits SILENCE_S, and the 32 s after which
# Tidegate gives up a call to carol (Timer B, RFC 3261 §17.1.1.2).
REFRESH_S = 90
# bob registers again 30 to 60 s after the end of its connection.
RECONNECTS_S = 65


class Account(NamedTuple):
    """A phone behind the router."""

    what: str
    port: int
    control_port: int
    parameters: str


ACCOUNTS = {
    "alice": Account("UDP", 5070, 4446, f'outbound="sip:{PROXY}:5060";sipnat=outbound;regint=3600'),
    "bob": Account("TCP", 5074, 4447, f'outbound="sip:{PROXY}:5060;transport=tcp";sipnat=outbound;regint=3600'),
    "dora": Account("TLS", 5082, 4449, f'outbound="sip:{PROXY}:5061;transport=tls";sipnat=outbound;regint=3600'),
    "carol": Account("UDP, no keep-alives", 5078, 4448, f'outbound="sip:{PROXY}:5060";regint={REFRESH_S}'),
}
REACHED, GONE, TIMED_OUT = "reached", "430", "408"
REGISTERED = "the phone has registered"
RESTARTED = "Tidegate has restarted"
EXPIRED = f"{SILENCE_S} s without a call, a UDP binding lives for {BINDING_S} s"
REJECTED = "the same, and the router rejects the datagrams (ICMP)"
AGAIN = "the phone has registered again"
STOPPED = "the phone has stopped"
MOVED = "Tidegate has restarted, UDP listener at another place"
# What a caller gets, by the table in docs/guide/connections.md.
EXPECTED = {
    REGISTERED: {"alice": REACHED, "bob": REACHED, "dora": REACHED, "carol": REACHED},
    RESTARTED: {"alice": REACHED, "bob": GONE, "dora": GONE, "carol": REACHED},
    EXPIRED: {"alice": REACHED, "carol": TIMED_OUT},
    REJECTED: {"carol": GONE},
    AGAIN: {"bob": REACHED, "carol": REACHED},
    STOPPED: {"alice": GONE, "bob": GONE},
    MOVED: {"dora": GONE, "carol": GONE},
}


class Networks:
    """The network of the phones, the router, and the outside network, which is that of this process."""

    def __init__(self, stage: Stage) -> None:
        self.phones, self.router = Namespace(stage, "phones"), Namespace(stage, "router")
        link(("phone", PHONE, self.phones), ("inside", GATEWAY, self.router))
        link(("outside", f"{PROXY} {BACKEND} {DESK}", None), ("wan", ROUTER, self.router))
        self.phones.run("ip", "route", "add", "default", "via", GATEWAY)
        self.router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        rules = "add table ip nat; add chain ip nat out { type nat hook postrouting priority srcnat; }; "
        rules += f"add rule ip nat out oifname wan meta l4proto {{ tcp, udp }} masquerade to :{PORTS} random; "
        rules += "add chain ip nat in { type filter hook input priority filter; }"
        self.router.run("nft", rules)
        # These settings exist when nft has loaded the module that tracks connections.
        for name in ("udp_timeout", "udp_timeout_stream"):
            self.router.run("sysctl", "-qw", f"net.netfilter.nf_conntrack_{name}={BINDING_S}")
        self.drop_unknown()

    def drop_unknown(self) -> None:
        """Makes the router drop datagrams that belong to no binding, as most routers do."""
        self.router.run("nft", "add rule ip nat in iifname wan meta l4proto udp drop")

    def reject_unknown(self) -> None:
        """Makes the router answer datagrams that belong to no binding with an ICMP error."""
        self.router.run("nft", "flush chain ip nat in")


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
        account = f'<sip:alice@{DOMAIN}>;outbound="sip:{PROXY}:5060";regint=0'
        phone = Baresip(stage, "baresip", phone_files(account, f"{PHONE}:5062", 4444), 4444)
    established = closed = 0
    for _ in range(BARESIP_CALLS):
        phone.command("dial", f"sip:service@{PROXY}")
        established += phone.event("CALL_ESTABLISHED", 5) is not None
        closed += phone.event("CALL_CLOSED", 5) is not None
    return established, closed


def hang_ups(record: Record, stage: Stage, networks: Networks, round_: int) -> dict[str, Any]:
    """Makes calls that the back end ends."""
    begun = time.monotonic()
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
    edge.stop()
    logs = ("tidegate.log", "sipp.errors", "backend.errors", "baresip.log")
    record.keep(*(stage.directory / name for name in logs), prefix=f"{round_}-")
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


def moved(configuration: str) -> str:
    """Returns a configuration in which the UDP listener and the TCP listener at its address have changed places."""
    other = {"udp": "tcp", "tcp": "udp"}
    return re.sub(r'(?<=^transport = ")(udp|tcp)(?="$)', lambda found: other[found[0]], configuration, flags=re.M)


class Registered:
    """Phones that register at a Kamailio through Tidegate, and a phone beside Kamailio that calls them."""

    def __init__(self, record: Record, stage: Stage, networks: Networks, round_: int) -> None:
        self._record, self._stage, self._networks, self._round = record, stage, networks, round_
        self.phones: dict[str, Baresip] = {}
        self.rows: list[dict[str, Any]] = []
        file = ROOT / "bench/kamailio-registrar.cfg"
        words = kamailio.command(stage, file, BACKEND, REGISTRAR_PORT, {}, allocator=None)
        stage.serve("kamailio", words, REGISTRAR_PORT)
        self.edge = Edge(5060, free_port(), stage.directory / "edge.toml")
        self._certificate = Certificate.make(stage.directory, PROXY)
        configuration = REGISTERED_CONFIGURATION.replace("ADMIN", str(self.edge.admin_port))
        configuration = configuration.replace("CERTIFICATE\n", self._certificate.keys())
        self.edge.configuration.write_text(configuration.replace("STATE", f"{stage.directory}/edge-state"))
        tidegate.run(stage, self.edge, name="edge")
        line = f'<sip:desk@{DOMAIN}>;outbound="sip:{BACKEND}:{REGISTRAR_PORT}";regint=3600'
        self.desk = Baresip(stage, "desk", phone_files(line, f"{DESK}:5062", 4445), 4445)
        self._registers("desk", self.desk)

    def start(self, name: str) -> Baresip:
        """Starts a phone behind the router. Returns it when it has registered."""
        account = ACCOUNTS[name]
        line = f"<sip:{name}@{DOMAIN}>;{account.parameters}"
        files = phone_files(line, f"{PHONE}:{account.port}", account.control_port)
        # Baresip checks certificates only if it has this file.
        files["config"] += f"sip_cafile {self._certificate.file}\n"
        with self._networks.phones.entered():
            phone = self.phones[name] = Baresip(self._stage, name, files, account.control_port)
        self._registers(f"{name} ({account.what})", phone)
        return phone

    def restart(self, name: str = "restarted") -> None:
        """Restarts Tidegate. The new process has the same keys."""
        self.edge.process.stop()
        tidegate.run(self._stage, self.edge, name=name)

    def restart_moved(self) -> None:
        """Restarts Tidegate with the UDP and the TCP listener in the other order."""
        self.edge.configuration.write_text(moved(self.edge.configuration.read_text()))
        self.restart("moved")

    def call(self, event: str, *names: str) -> None:
        """Calls phones from desk, and compares the outcome with the documentation."""
        for name in names:
            outcome = self._outcome(name)
            expected = EXPECTED[event][name]
            wanted = "" if outcome == expected else f", expected: {expected}"
            self._record.expect(outcome == expected, f"{event}, call to {name}: {outcome}{wanted}")
            self.rows.append({"round": self._round, "event": event, "phone": name, "outcome": outcome})

    def _outcome(self, name: str) -> str:
        reason = self.desk.dial(f"sip:{name}@{DOMAIN}", 45)
        if reason != ESTABLISHED:
            return reason.partition(" ")[0]
        phone = self.phones[name]
        answered = phone.event("CALL_ESTABLISHED", 5)
        self.desk.command("hangup")
        ended = self.desk.event("CALL_CLOSED", 5) and phone.event("CALL_CLOSED", 5)
        return REACHED if answered and ended else "no ACK or no BYE"

    def _registers(self, what: str, phone: Baresip) -> None:
        self._record.expect(phone.registered(), f"{what} registers")


def conversation(record: Record, caller: Baresip, callee: Baresip, desk: Baresip) -> None:
    """Makes a call in which each phone holds and resumes, and which the caller then transfers to desk."""
    what = f"{caller.name} calls {callee.name}"
    reason = caller.dial(f"sip:{callee.name}@{DOMAIN}")
    answered = callee.event("CALL_ESTABLISHED", 5)
    record.expect(reason == ESTABLISHED and answered is not None, f"{what}: {reason}")
    answers = []
    for holder, other in ((caller, callee), (callee, caller)):
        for command in ("hold", "resume"):
            holder.command(command)
            bodies = (other.event("CALL_REMOTE_SDP", 5), holder.event("CALL_REMOTE_SDP", 5))
            answers.append([body and body.get("param") for body in bodies] == ["offer", "answer"])
    record.expect(all(answers), f"{what}: {sum(answers)} of 4 re-INVITEs are answered (both hold and resume)")
    caller.command("transfer", f"sip:{desk.name}@{DOMAIN}")
    asked = callee.event("TRANSFER", 5)
    connected = callee.event("CALL_ESTABLISHED", 5) and desk.event("CALL_ESTABLISHED", 5)
    # The NOTIFY of the callee tells the caller of the success. Baresip then ends its own call.
    released = caller.event("CALL_CLOSED", 5)
    ended = callee.event("CALL_CLOSED", 5)
    held = bool(asked and connected and ended) and "transfer" in (released or {}).get("param", "")
    record.expect(held, f"{what}, and transfers it to {desk.name}: REFER and NOTIFY arrive, and the call ends")
    desk.command("hangup")
    hung_up = desk.event("CALL_CLOSED", 5) and callee.event("CALL_CLOSED", 5)
    record.expect(hung_up is not None, f"{desk.name} hangs up, and the BYE reaches {callee.name}")


def registered(record: Record, stage: Stage, networks: Networks, round_: int) -> list[dict[str, Any]]:
    """Calls registered phones. Returns the outcome of each call."""
    site = Registered(record, stage, networks, round_)
    alice, bob = site.start("alice"), site.start("bob")
    dora = site.start("dora")
    for caller, callee in ((alice, bob), (bob, alice), (alice, dora), (dora, alice)):
        conversation(record, caller, callee, site.desk)
    carol = site.start("carol")
    site.call(REGISTERED, *site.phones)
    site.restart()
    # carol comes first, while the router still has its binding.
    site.call(RESTARTED, "carol", "alice", "bob", "dora")
    noticed = bob.event("REGISTER_FAIL", 5)
    bindings = site.edge.metrics().total("stun_bindings")
    time.sleep(SILENCE_S)
    bindings = site.edge.metrics().total("stun_bindings") - bindings
    record.expect(bindings >= SILENCE_S // 5, f"in {SILENCE_S} s Tidegate answers {bindings} STUN requests of alice")
    site.call(EXPIRED, "alice", "carol")
    networks.reject_unknown()
    site.call(REJECTED, "carol")
    networks.drop_unknown()
    reconnected = bob.registered(RECONNECTS_S)
    record.expect(noticed is not None and reconnected, "bob sees the end of its connection, and registers again")
    site.call(AGAIN, "bob")
    refreshed = carol.event("REGISTER_OK", REFRESH_S)
    record.expect(refreshed is not None, "carol registers again")
    site.call(AGAIN, "carol")
    for phone in (alice, bob):
        # After another signal the phone would remove its registration.
        phone.process.stop(signal.SIGKILL)
    site.call(STOPPED, "alice", "bob")
    site.restart_moved()
    # The new listener at the place in carol's token uses TCP. carol and dora have not registered again yet.
    site.call(MOVED, "carol", "dora")
    logs = ("edge.log", "restarted.log", "moved.log", "kamailio.log", "desk.log", *(f"{name}.log" for name in ACCOUNTS))
    record.keep(*(stage.directory / name for name in logs), prefix=f"{round_}-")
    return site.rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Prints the outcome of a call to each phone after each event, of all rounds."""
    width = max(map(len, EXPECTED)) + 2
    print("\nOutcome of a call from desk")
    for of in (str, lambda name: ACCOUNTS[name].what):
        print(" " * width + "".join(f"{of(name):21}" for name in ACCOUNTS).rstrip())
    for event in EXPECTED:
        cells = ""
        for name in ACCOUNTS:
            outcomes = {row["outcome"] for row in rows if (row["event"], row["phone"]) == (event, name)}
            cells += f"{', '.join(sorted(outcomes)) or '-':21}"
        print(f"{event:{width}}{cells}".rstrip())
    print(flush=True)


def one_run(record: Record, round_: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    print(f"round {round_}")
    with Stage() as stage:
        networks = Networks(stage)
        return hang_ups(record, stage, networks, round_), registered(record, stage, networks, round_)


class Show(Demonstration):
    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        namespace.enter_own()
        programs = ("nft", "ip", "sysctl", "nsenter", "sipp", "baresip", "kamailio")
        missing = [program for program in programs if not shutil.which(program)]
        if missing:
            sys.exit(f"{', '.join(missing)}: missing; `scripts/setup nat` installs it")

    def run(self) -> Results:
        runs = [one_run(self, round_) for round_ in self.rounds]
        calls = [row for _, rows in runs for row in rows]
        show(calls)
        return {"runs": self.rows("runs", [row for row, _ in runs]), "calls": self.rows("calls", calls)}
