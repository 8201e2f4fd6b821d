"""The goodput of four laws at half to five times the capacity, on real sockets, compared with the bound

Runs scenarios/overload-local.toml: a Tidegate that is slowed down to about 200 calls/s stands in front of answerers on
this machine. Each law decides once as the servers in the papers do and once as Tidegate does, with three runs at each
load. This takes about nine minutes. The figures are beside the raw data.
"""

from tidegate_bench import program, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.demonstrations.laws import COLUMNS

# A run takes little CPU time, because its processor is emulated.
JOBS = 4


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        results = program.scenario("scenarios/overload-local.toml", self.directory, "--jobs", JOBS)
        for verdict in results["conditions"]:
            self.expect(verdict["held"], verdict["condition"])
        rows = results["rows"]
        table.show(rows, COLUMNS, line=lambda row: f"{row['load']:4.1f}", block=lambda row: row["variant"])
        self.expect(all(row["runs"] >= 3 for row in rows) and len(rows) == 48, "48 parameter sets, three runs of each")
        lost = sum(row["drops"] for row in rows)
        self.expect(lost == 0, f"the generator lost {lost} datagrams")
        slow = sum(row["too_slow"] for row in rows)
        self.expect(slow == 0, f"the generator was too slow in {slow} runs")
        return {}
