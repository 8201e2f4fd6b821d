"""An outside and an inside listener in network namespaces: calls and their BYEs pass in both directions

There are three network namespaces: a caller outside, Tidegate with one listener on each network, and Kamailio with a
callee inside. There is no route between outside and inside, so a packet that leaves through the wrong listener is
lost. SIPp calls, and the callee hangs up: its BYE has to find its way outside. The test runs once with the routing
table alone, and once with `listener = "inside"`.
"""

import argparse
from dataclasses import asdict
from typing import Any

from tidegate_bench import kamailio, namespace, sipp
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.namespace import Namespace, link
from tidegate_bench.process import Cores, Stage
from tidegate_bench.record import ROOT, Record
from tidegate_bench.tidegate import built

OUTSIDE, INSIDE = "192.0.2", "198.51.100"
CALLS, RATE_CPS = 200, 50
# A peer listens within this time.
SETTLE_S = 1.0

CONFIGURATION = f"""\
[server]
state_dir = "STATE"

[admin]
address = "off"

[[listen]]
name = "outside"
transport = "udp"
address = "{OUTSIDE}.1:5060"

[[listen]]
name = "inside"
transport = "udp"
address = "{INSIDE}.1:5060"

[[pool]]
name = "app"
LISTENER
[[pool.backend]]
uri = "sip:{INSIDE}.2:5070"
[pool.health]
probe = "options"
interval_s = 0.5
timeout_ms = 400
"""


def one_run(record: Record, seed: int, listener: str) -> dict[str, Any]:
    with Stage() as stage:
        callers, edges, servers = (Namespace(stage, f"of-{name}") for name in ("caller", "edge", "inside"))
        for net, other in ((OUTSIDE, callers), (INSIDE, servers)):
            end = "outside" if other is callers else "inside"
            link((f"edge-{end}", f"{net}.1", edges), (end, f"{net}.2", other))
        words = sipp.command(stage, "callee", "uas-hangs-up", 5060, f"{INSIDE}.2", options=["-m", str(CALLS)])
        servers.start("callee", words, SETTLE_S)
        file, defines = ROOT / "bench/kamailio-inside.cfg", {"TO": f'"{INSIDE}.2", "5060"'}
        servers.start("kamailio", kamailio.command(stage, file, f"{INSIDE}.2", 5070, defines), SETTLE_S)
        configuration = stage.directory / "tidegate.toml"
        text = CONFIGURATION.replace("STATE", f"{stage.directory}/state").replace("LISTENER", listener)
        configuration.write_text(text)
        edge = edges.start("tidegate", [built("tidegate"), "run", "--config", str(configuration)], SETTLE_S)
        words = sipp.command(stage, "caller", "uac-hung-up", 5060, f"{OUTSIDE}.2")
        words += ["-r", str(RATE_CPS + seed), "-m", str(CALLS), "-l", str(CALLS), "-timeout", "60s"]
        caller = callers.start("caller", [*words, f"{OUTSIDE}.1:5060"])
        cores = Cores(caller)
        ended = caller.wait(70)
        [used] = cores.used()
        drops = edge.drops()
        kept = ("tidegate.log", "kamailio.log", "caller.errors", "callee.errors")
        way = "listener" if listener else "routing-table"
        record.keep(*(stage.directory / name for name in kept), prefix=f"{way}-{seed}-")
        calls = sipp.made_by(stage, "caller", caller, 5060).calls()
    how = listener or "routing table"
    record.expect(ended and calls.clean and calls.created == CALLS, f"seed {seed}, {how}: {calls}")
    row = {"seed": seed, "how": how, **asdict(calls)}
    return row | {"generator_cores": round(used, 3), "server_drops": drops}


class Show(Demonstration):
    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        namespace.enter_own()

    def run(self) -> Results:
        ways = ("", 'listener = "inside"')
        return {"runs": self.rows("runs", [one_run(self, seed, way) for way in ways for seed in self.rounds])}
