"""Whole worlds from 300 seeds, with losses, crashes and overload: nothing that must hold fails

Each seed draws proxies in rows and meshes, with and without transactions, forks, laws, emulated
costs, small tables; crowds that call, hang up and give up; servers that answer, refuse, ring and
keep silent; links that lose, double, reorder and choke; crashes, stalls and partitions. Every
checker of docs/checkers.md watches every packet. What a checker can find shows
`make show-planted`.
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
        self.expect(tally["failed"] == 0, f"in {tally['failed']} of them something did not hold")
        self.expect(tally["unwatched"] == 0, "everything was watched")
        busy = all(tally[name] > SEEDS for name in ("completed", "missing", "faults"))
        self.expect(busy, "calls were completed, packets lost, and things went wrong")
        again = [program.swarm("--seeds", 10, "--out", worlds)["tally"] for _ in "ab"]
        self.expect(again[0] == again[1], "the same seeds give the same worlds")
        self.rows("tally", [tally])
        return {"swarm": found}
