"""300 random networks with losses, crashes and overload: every checked rule holds

Each seed draws proxies in rows and meshes, with and without transactions, with forks, laws, emulated costs and small
tables. It also draws callers that call, hang up and give up, servers that answer, reject, ring and are silent, links
that lose, duplicate, reorder and throttle packets, and crashes, stalls and partitions. Every checker of
docs/checkers.md watches every packet. `make show-planted` shows what a checker can find.
"""

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results

SEEDS = 300


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        worlds = self.directory / "worlds"
        found = program.swarm("--seeds", SEEDS, "--out", worlds)
        tally = found["tally"]
        for name, count in tally.items():
            print(f"  {name:<12}{count:>10}")
        print(f"  in {found['wall_s']:.0f} s")
        for failure in found["failures"]:
            print(f"  seed {failure['seed']}: {failure['finding']['what']}\n    {failure['file']}")
        self.expect(tally["worlds"] == SEEDS, f"{SEEDS} worlds were run")
        self.expect(tally["failed"] == 0, f"in {tally['failed']} of them a rule was violated")
        self.expect(tally["unwatched"] == 0, "everything was watched")
        busy = all(tally[name] > SEEDS for name in ("completed", "missing", "faults"))
        self.expect(busy, "calls were completed, packets were lost, and faults occurred")
        again = [program.swarm("--seeds", 10, "--out", worlds)["tally"] for _ in "ab"]
        self.expect(again[0] == again[1], "the same seeds give the same worlds")
        self.rows("tally", [tally])
        return {"swarm": found}
