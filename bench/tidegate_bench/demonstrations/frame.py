"""The same cores in simulated time: one seed gives one trace, and a recorded real run is replayed exactly

The real proxy and agents run without sockets. 10,000 calls to three answerers run three times with one seed and once
with another. Then an hour of calls is simulated in seconds. Finally, the recorded inputs of a run over real sockets are
given to a proxy without sockets, which must send the same bytes.
"""

from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results

CALLS = 10_000
HOUR_S = 3600


def is_replayed() -> bool:
    """Runs the test that records real sockets and replays them, and returns whether it passed."""
    command = ("cargo", "test", "--quiet", "--package", "tidegate-server", "--test", "recorded", "--")
    # Status 101 means that it failed. If no test has this name, the status is 0.
    said = program.output(*command, "--exact", "the_replay_of_a_real_run_sends_the_same_bytes", ok=(0, 101))
    return "test result: ok. 1 passed; 0 failed" in said


def simulate(seed: int, calls: int, rate: float) -> dict[str, Any]:
    row = program.cargo_example("frame", seed, calls, rate)
    print(f"  {row}", flush=True)
    return row


class Show(Demonstration):
    def run(self) -> Results:
        print("\n10,000 calls to three answerers, at 1,000 calls/s")
        runs = [simulate(1, CALLS, 1000) for _ in self.rounds]
        other = simulate(2, CALLS, 1000)
        self.expect(all(run["completed"] == CALLS for run in [*runs, other]), "every call completes")
        self.expect(all(sum(run["answered"]) == CALLS for run in runs), "one of the three answerers answers each call")
        traces = {run["trace"] for run in runs}
        self.expect(len(traces) == 1, f"one seed gives one trace in {len(runs)} runs: {traces}")
        self.expect(other["trace"] not in traces, "another seed gives another trace")

        print("\nan hour of 10 calls/s")
        hours = [simulate(seed, HOUR_S * 10, 10) for seed in self.rounds]
        self.expect(all(hour["simulated_s"] > HOUR_S * 0.95 for hour in hours), "each run simulates an hour")
        self.expect(all(hour["wall_s"] < 60 for hour in hours), "each of them takes less than a minute")
        self.rows("runs", [*runs, other, *hours])

        print("\na run over real sockets, recorded and replayed")
        for _ in self.rounds:
            self.expect(is_replayed(), "the replay sends the same bytes")
        return {"runs": runs, "other": other, "hours": hours}
