"""An hour of 1,000 calls/s with every outcome in simulated time leaves no state behind

The real proxy with its transactions runs with a group of callers, three back ends, and links of 1 ms that lose one
packet in a thousand. Calls are answered and ended by either side, rejected, cancelled, or get no response. Three seeds
run for five minutes each, and one for the hour.
"""

from typing import Any

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import Record

RATE_CPS = 1000
SEEDS = (1, 2, 3)
SHORT_S = 300
HOUR_S = 3600


def outcomes(run: dict[str, Any]) -> dict[str, int]:
    """Returns the outcomes of the calls as the callers saw them. Each call counts once."""
    caller = run["caller"]
    failed = caller["failed"]
    kinds = {
        "ended by the caller": caller["completed"] - caller["hung_up"],
        "ended by the callee": caller["hung_up"],
        "given up": failed["abandoned"],
        **{f"rejected, {status}": count for status, count in failed["status"].items()},
        **{f"BYE rejected, {status}": count for status, count in failed["bye_status"].items()},
        "no answer at all": failed["timeout"] + failed["transport"],
        "BYE not answered": failed["bye_timeout"],
        "answer not understood": failed["malformed"],
    }
    return {kind: count for kind, count in kinds.items() if count > 0}


def row(run: dict[str, Any]) -> dict[str, Any]:
    """Returns the figures of a run, as a row of the table."""
    return {
        "seed": run["seed"],
        "lasts_s": run["lasts_s"],
        "calls": run["caller"]["offered"],
        "set_up": run["caller"]["set_up"],
        "deliveries": run["deliveries"],
        "lost": run["lost"],
        "deliveries_per_cpu_s": round(run["deliveries_per_cpu_s"]),
        "cpu_s": round(run["cpu_s"], 1),
        "wall_s": round(run["wall_s"], 1),
        **{f"peak_{table}": entries for table, entries in run["peak"].items()},
        **{f"left_{table}": entries for table, entries in run["left"].items()},
        "rss_peak_mib": round(run["rss_peak_kib"] / 1024),
        "trace": run["trace"],
    }


def show(record: Record, run: dict[str, Any]) -> None:
    figures = row(run)
    kinds = outcomes(run)
    calls = figures["calls"]
    print(f"\n{run['lasts_s']} s of {RATE_CPS} calls/s, seed {run['seed']}: {calls} calls")
    for kind, count in kinds.items():
        print(f"  {kind:<24}{count:>9}  {100 * count / calls:6.2f} %")
    print(
        f"  {figures['deliveries']} packets delivered, {figures['lost']} lost; CPU"
        f" {figures['cpu_s']} s, wall {figures['wall_s']} s:"
        f" {figures['deliveries_per_cpu_s']} deliveries a CPU second"
    )
    print(f"  sent again by the proxy: {run['proxy']}")
    print(f"  tables at their largest: {run['peak']}; proxy and agents had {figures['rss_peak_mib']} MiB at the most")
    print(f"  {run['simulated_s'] - run['lasts_s']:.0f} s after the last call: {run['left']}")
    record.expect(
        run["conserved"] and sum(kinds.values()) == calls,
        "every call ended in exactly one way, by the counts of both ends",
    )
    record.expect(0.65 <= figures["set_up"] / calls <= 0.75, "about 70 % were set up")
    record.expect(
        all(
            kinds.get(kind, 0) > calls / 1000
            for kind in ("given up", "ended by the callee", "rejected, 486", "rejected, 500")
        ),
        "calls were given up, ended by the callee, and rejected with 486 and with 500",
    )
    record.expect(not any(run["left"].values()), "no call and no transaction is left")
    record.expect(run["settled"], "no back end is counted as having work")


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        runs = []
        for seed, lasts_s in [*((seed, SHORT_S) for seed in SEEDS), (SEEDS[0], HOUR_S)]:
            run = program.cargo_example("hour", "transaction", seed, RATE_CPS, lasts_s)
            runs.append(run)
            show(self, run)
        self.rows("runs", map(row, runs))
        self.expect(len({run["trace"] for run in runs}) == len(runs), "the traces of all runs differ")
        self.expect(runs[-1]["wall_s"] < HOUR_S, "the simulation of an hour took less than an hour")
        return {"runs": runs}
