"""A balancer in front of eight servers: response times on real sockets compared with simulated time

Runs scenarios/paper-003-wire.toml in both worlds: the mean response time of INVITEs under three policies, at half and
at 95 % of the capacity, five runs of each parameter set. The servers do not pause, because an emulated processor on
real sockets does not notice a pause. The comparison must fail if the real means are doubled.
`tidegate-lab reproduce --row 003` judges the claims of the paper. With `--rounds 1` each parameter set has one run
instead of five.
"""

import statistics
from collections.abc import Callable, Mapping
from math import exp, log

from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.experiment import Points, Run, judge_generator

POLICIES = ("TLWL-1.75", "CJSQ", "RR")
# Number of real runs at the same time. Each takes a fifth of a core.
REAL_JOBS = 3
# The largest allowed median factor between simulated and real means.
APART_MAX = 1.25

Means = Mapping[tuple[str, float], float]
"""Mean response times of INVITEs in ms, by policy and load."""


def invite_ms(points: Points) -> float:
    """Returns the median, over the runs, of the mean response time of INVITEs."""
    delays = [point["outcome"]["callers"][0]["stats"]["measured"]["set_up_delay"] for point in points]
    return float(statistics.median(delay["mean_us"] / 1e3 for delay in delays))


def apart(sim: Means, real: Means, of: Callable[[list[float]], float]) -> float:
    """Returns the factor between the means of the two worlds. `of` summarises the factors of all parameter sets."""
    return exp(of([abs(log(real[place] / sim[place])) for place in sim]))


class Show(Demonstration):
    PROFILE = "release"
    ROUNDS = 5

    def run(self) -> Results:
        runs = {
            world: Run(
                self,
                "paper-003-wire",
                world,
                REAL_JOBS if world == "real" else None,
                self.profile,
                repetitions=str(len(self.rounds)),
            )
            for world in ("sim", "real")
        }
        loads = sorted({p["swept"]["load"] for p in runs["sim"].points})
        sim, real = (
            {(policy, load): invite_ms(run.of(policy, load=load)) for policy in POLICIES for load in loads}
            for run in runs.values()
        )
        print("\nmean response time of INVITEs in ms, 8 servers of 75 calls/s: simulated / real sockets")
        print("  load        " + "".join(f"{load:>16}" for load in loads))
        for policy in POLICIES:
            cells = (f"{sim[policy, load]:8.1f} /{real[policy, load]:6.1f}" for load in loads)
            print(f"  {policy:<12}" + "".join(cells))
        judge_generator(self, runs["real"].points)
        middle, most = (apart(sim, real, of) for of in (statistics.median, max))
        self.expect(
            middle <= APART_MAX,
            f"simulated and real means differ by a factor of {middle:.2f} in the median, {most:.2f} at most",
        )
        planted = apart(sim, {place: 2 * mean for place, mean in real.items()}, statistics.median)
        self.expect(planted > APART_MAX, f"the check fails if the real means are doubled: factor {planted:.2f}")
        self.rows(
            "means",
            [
                {"policy": policy, "load": load, "sim_ms": mean, "real_ms": real[policy, load]}
                for (policy, load), mean in sim.items()
            ],
        )
        return {}
