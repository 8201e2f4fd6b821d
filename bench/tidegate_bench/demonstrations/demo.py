"""Overload in a minute: the protected server keeps its goodput, and the unprotected one collapses

Runs `tidegate demo` three times with three seeds, 60 s each. At every load, up to five times the capacity, the
protected server must keep at least 80 % of the bound. The unprotected server must collapse beyond its capacity.
"""

import json
from collections import defaultdict

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.tidegate import built

SECONDS = 60


class Show(Demonstration):
    def run(self) -> Results:
        kept: dict[float, list[float]] = defaultdict(list)
        collapsed: dict[float, list[float]] = defaultdict(list)
        for seed in self.rounds:
            raw, picture = (self.directory / f"seed-{seed}.{kind}" for kind in ("json", "svg"))
            demo = (built("tidegate"), "demo", "--plain", "--seconds", SECONDS, "--seed", seed)
            printed = program.output(*demo, "--json", raw, "--picture", picture, timeout=4 * SECONDS)
            print(f"\nseed {seed}\n" + printed[printed.find("Goodput as") :])
            result = json.loads(raw.read_text())
            capacity = result["capacity_cps"]
            for side, values in (("protected", kept), ("unprotected", collapsed)):
                for phase in result[side]:
                    load = phase["multiple"]
                    # The number of randomly arriving calls differs from the requested one.
                    bound = min(phase["offered_cps"] / capacity, 1)
                    values[load].append(phase["goodput_cps"] / capacity / bound)
                    load_cpu, drops = phase["generator_load"], phase["generator_drops"]
                    self.expect(
                        load_cpu < 0.7 and drops == 0,
                        f"seed {seed}, {side} at {load} x: generator at {load_cpu:.0%} of a core, "
                        f"{drops} datagrams lost",
                    )
        for load, parts in kept.items():
            least, most = min(parts), max(parts)
            self.expect(least >= 0.8, f"at {load} x the protected server keeps {least:.0%} to {most:.0%} of the bound")
        for load, parts in collapsed.items():
            if load > 1:
                least, most = min(parts), max(parts)
                self.expect(most < 0.5, f"at {load} x the unprotected one keeps {least:.0%} to {most:.0%}")
        return {"kept": kept, "collapsed": collapsed}
