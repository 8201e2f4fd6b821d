"""Goodput of four laws at half to five times the capacity, on real sockets, beside the bound

The scenario scenarios/overload-local.toml: a Tidegate slowed down to about 200 calls/s stands
before answerers on this machine. Each law is run as the papers' servers decide and as Tidegate
does, three times under each load. About nine minutes; the figures lie with the raw data.
"""

from tidegate_bench import program, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.demonstrations.laws import COLUMNS

# A point costs little CPU: its processor is emulated.
JOBS = 4


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        results = program.scenario("scenarios/overload-local.toml", self.directory, "--jobs", JOBS)
        for verdict in results["conditions"]:
            self.expect(verdict["held"], verdict["condition"])
        rows = results["rows"]
        table.show(rows, COLUMNS, line=lambda row: f"{row['load']:4.1f}", block=lambda row: row["variant"])
        self.expect(all(row["runs"] >= 3 for row in rows) and len(rows) == 48, "48 points, three runs of each")
        lost = sum(row["drops"] for row in rows)
        self.expect(lost == 0, f"the generator lost {lost} datagrams")
        slow = sum(row["too_slow"] for row in rows)
        self.expect(slow == 0, f"the generator was too slow in {slow} runs")
        return {}
