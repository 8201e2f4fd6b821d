"""100,000 calls over datagrams and streams, whose connections break, stall and are slow: all holds

Three times 300 worlds are drawn, each time from the next seeds, in which messages travel on streams here
and there: from callers, between proxies, to back ends. Connections are reset, break within a
message, and are read slowly; nodes crash, stall and are partitioned. All checkers watch. What they
find if something is broken on purpose, `make show-planted` shows.
"""

import json

from tidegate_bench import program, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.table import Column

FIRST_SEEDS = (1, 301, 601)
WORLDS = 300
CALLS_MIN = 100_000
TALLY = ("offered", "set_up", "completed", "delivered", "missing", "faults", "failed")


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        rows = []
        for first in FIRST_SEEDS:
            seeds = ("--from", first, "--seeds", WORLDS, "--tries", 20)
            found = program.swarm("--streams", *seeds, "--out", self.directory / f"worlds-{first}")
            self.text(f"swarm-{first}.json", json.dumps(found))
            rows.append({"first": first, "worlds": WORLDS, **found["tally"]})
        self.rows("worlds", rows)
        table.show(rows, [Column(name, name) for name in TALLY], line=lambda row: f"from seed {row['first']}")
        for row in rows:
            self.expect(
                row["failed"] == 0 and row["unwatched"] == 0,
                f"nothing is found in {row['worlds']} worlds from seed {row['first']}",
            )
        calls = [row["offered"] for row in rows]
        self.expect(min(calls) >= CALLS_MIN, f"{min(calls):,} calls or more in each hunt")
        self.expect(len(set(calls)) == len(calls), "the hunts differ")
        return {"worlds": rows}
