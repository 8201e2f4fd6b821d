"""A region's failure spreads without overload control, on real sockets too. With the default it does not

Runs scenarios/outage-t-mobile-2020.toml with 50 s after the trigger instead of 130 s, in simulated time and on real
sockets. Three emulated servers are behind a balancer, and one of them is down for 30 s. People call again, and devices
register again. Without control, the calls set up in time in the last 30 s are at most half of the first attempts. With
the default, they are at least nine tenths, nine tenths of the devices are registered at the end, and goodput is back
within 1.1 times the time that the backlog takes at full capacity. With `priority` for these callers, all emergency
calls are set up in time. A run on real sockets takes two minutes, and `--rounds` gives the number of runs of each
variant.
"""

from typing import Any

from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.experiment import Points, Run, judge_generator
from tidegate_bench.record import Spread

SCENARIO = "outage-t-mobile-2020"
LABELS = ("no control", "default", "default, priority")
# The figures of a run that are shown.
COURSE = ("of_limit", "goodput_end", "goodput", "persons_served", "registered_end", "emergency")
# Goodput in the last 30 s, as a part of the first attempts: the maximum after a collapse, the minimum after a recovery.
COLLAPSED_MAX = 0.5
BACK_MIN = 0.9
# The time until goodput is back, as a multiple of the time that the backlog takes at full capacity.
BACKLOG_MAX = 1.1
# The value for a goodput that does not come back. No run is that long.
NEVER = 1000.0
# The minimum share of emergency calls that are served in time if their callers may claim priority.
EMERGENCY_MIN = 0.9999
# The minimum share of the devices that are registered at the end. Devices wait before they register again, so only some
# 95 % of them are back 50 s after the trigger. `tidegate-lab reproduce` judges the end of the whole scenario.
REGISTERED_MIN = 0.9


def of_limit(outage: dict[str, Any]) -> float:
    """Returns the time until goodput is back, divided by the limit for this time, or `NEVER`."""
    recovered_s, limit_s = outage["recovered_s"], BACKLOG_MAX * outage["backlog_s"]
    if recovered_s is None or limit_s == 0:
        return 0.0 if recovered_s == 0 else NEVER
    return min(recovered_s / limit_s, NEVER)


def course(world: str, label: str, point: dict[str, Any]) -> dict[str, Any]:
    """Returns the figures of one run."""
    outcome = point["outcome"]
    outage, generator = outcome["outage"], outcome["generator"]
    emergency = outage["emergency_in_time"] / max(1, outage["emergency"])
    return {
        "world": world,
        "label": label,
        "seed": point["seed"],
        "backlog_s": outage["backlog_s"],
        "recovered_s": outage["recovered_s"],
        "of_limit": of_limit(outage),
        "goodput_end": outage["goodput_end"],
        "goodput": outcome["good"] / max(1, outcome["persons"]),
        "persons_served": outcome["persons_served"] / max(1, outcome["persons"]),
        "registered_end": outage["registered_end"],
        "emergency": emergency,
        "emergency_calls": outage["emergency"],
        "generator_load": max(generator["caller_load"], generator["answerer_load"]),
        "drops": generator["drops"],
    }


class Show(Demonstration):
    PROFILE = "debug"

    def run(self) -> Results:
        rounds = str(len(self.rounds))
        rows, points = [], Points()
        for world, jobs in (("sim", None), ("real", 1)):
            run = Run(self, SCENARIO, world, jobs, self.profile, measured_s="50", repetitions=rounds)
            points += run.points
            rows += [course(world, label, point) for label in LABELS for point in run.of(label)]
        self.rows("runs", rows)
        for world in ("sim", "real"):
            print(f"\n{world}: minimum, median, maximum of {rounds} runs")
            for label in LABELS:
                for key in COURSE:
                    print(f"  {label:<18}{key:<16}{self.spread(rows, world, label, key).text(3)}")
            collapsed = self.spread(rows, world, "no control", "goodput_end").maximum
            back = self.spread(rows, world, "default", "goodput_end").minimum
            emergency = self.spread(rows, world, "default, priority", "emergency").minimum
            self.expect(
                collapsed <= COLLAPSED_MAX, f"{world}, no control: goodput of the last 30 s at most {collapsed:.2f}"
            )
            self.expect(back >= BACK_MIN, f"{world}, default: goodput of the last 30 s at least {back:.2f}")
            late = self.spread(rows, world, "default", "of_limit").maximum
            self.expect(late <= 1, f"{world}, default: goodput is back after at most {late:.2f} of the allowed time")
            registered = self.spread(rows, world, "default", "registered_end").minimum
            self.expect(
                registered >= REGISTERED_MIN, f"{world}, default: {registered:.3f} of the devices registered at the end"
            )
            self.expect(
                emergency >= EMERGENCY_MIN, f"{world}, priority: {emergency:.4f} of emergency calls served in time"
            )
        judge_generator(self, points)
        return {"rows": rows}

    @staticmethod
    def spread(rows: list[dict[str, Any]], world: str, label: str, key: str) -> Spread:
        """Returns the spread of a quantity over the runs of a variant in a world."""
        return Spread.of([row[key] for row in rows if (row["world"], row["label"]) == (world, label)])
