"""Every law at 0.5 to 10 times the capacity, on real sockets: goodput compared with the bound

Runs scenarios/laws.toml: an emulated server of 200 calls/s, three runs of each parameter set, six at a time. `--laws`
selects some laws. The table shows for each law: goodput and the bound, retransmitted INVITEs per call, p50 and p99 of
the set-up delay, and the share of rejected calls. It also shows the processor time of the generator and the losses at
sockets. No BYE and no ACK of an admitted call may be lost at any load. Every law must set up calls at the lowest load,
and the conditions of the scenario must hold.
"""

import argparse
import re
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

from tidegate_bench import program, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.experiment import judge_scenario
from tidegate_bench.record import ROOT
from tidegate_bench.table import Column

JOBS = 6


def of(key: str, part: str) -> Callable[[dict[str, Any]], float | None]:
    """Returns a function that reads a value of a spread in a row. It returns `None` if nothing was measured."""
    return lambda row: row[key] and row[key][part]


def spread(title: str, key: str, digits: int) -> list[Column]:
    """Returns columns for the minimum, the median and the maximum of the runs."""
    titles = ((f"{title}: min", "min"), ("median", "median"), ("max", "max"))
    return [Column(head, of(key, part), digits) for head, part in titles]


COLUMNS = [
    Column("bound", "bound", 2),
    *spread("goodput ÷ C", "goodput", 2),
    *spread("repeated", "retransmission_ratio", 2),
    *spread("p50, ms", "p50_ms", 0),
    *spread("p99, ms", "p99_ms", 0),
    *spread("rejected", "rejected", 2),
]
"""Columns of a scenario: goodput as a part of the capacity, repeated INVITEs for each call, delay, rejected share."""


def lost(outcome: dict[str, Any]) -> Counter[str]:
    """Counts BYEs without a 2xx response, of callers and of callees, and answers without an ACK."""
    callers = [callers["stats"]["failed"] for callers in outcome["callers"]]
    return Counter(
        bye=sum(failed["bye_timeout"] + sum(failed["bye_status"].values()) for failed in callers),
        ack=outcome["answerers"]["not_acknowledged"],
        callee_bye=outcome["answerers"]["byes_unanswered"],
    )


def only(scenario: str, laws: Collection[str]) -> str:
    """Returns the text of a scenario with only the variants and expectations of these laws."""
    head, *tables = re.split(r"^(?=\[\[)", scenario, flags=re.MULTILINE)
    return head + "".join(table for table in tables if any(re.search(rf'"{law}[ "]', table) for law in laws))


class Show(Demonstration):
    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--laws", help="laws to compare, separated by commas (default: all)")
        parser.add_argument(
            "--world",
            choices=("real", "sim"),
            default="real",
            help="real sockets or simulated time (default %(default)s)",
        )

    def run(self) -> Results:
        out = self.directory / self.options.world
        scenario = self.directory / "laws.toml"
        text = (ROOT / "scenarios/laws.toml").read_text()
        if self.options.laws:
            text = only(text, self.options.laws.split(","))
        scenario.write_text(text.replace("repetitions = 3", f"repetitions = {self.options.rounds}"))
        results = program.scenario(scenario, out, "--world", self.options.world, "--jobs", JOBS)
        rows, runs = results["rows"], results["points"]
        print(f"minimum, median and maximum of {rows[0]['runs']} runs:")
        table.show(rows, COLUMNS, line=lambda row: f"{row['load']:4g}", block=lambda row: row["variant"])
        busy = max(row["generator_load"] for row in rows)
        drops = sum(row["drops"] for row in rows)
        slow = sum(row["too_slow"] or 0 for row in rows)
        print(f"        generator: at most {busy:.2f} of a core")
        judge_scenario(self, results)
        least = min(row["load"] for row in rows)
        idle = [row["variant"] for row in rows if row["load"] == least and not row["goodput"]["min"]]
        self.expect(not idle, f"at load {least:g} every law sets up calls, except {idle}")
        self.expect(drops == 0, f"the generator lost {drops} datagrams")
        self.expect(slow == 0, f"the generator was too slow in {slow} of {len(runs)} runs")
        lost_of: Counter[str] = Counter()
        for run in runs:
            lost_of.update(lost(run["outcome"]))
        self.expect(
            not any(lost_of.values()), f"of admitted calls no BYE and no ACK was lost at any load: {dict(lost_of)}"
        )
        for load in sorted({row["load"] for row in rows}):
            bound = next(row["bound"] for row in rows if row["load"] == load)
            kept = {row["variant"].split(" (")[0]: row["goodput"]["median"] for row in rows if row["load"] == load}
            within = [law for law, goodput in kept.items() if goodput >= 0.8 * bound]
            print(
                f"        load {load:g}: bound {bound:.2f}, best {max(kept.values()):.2f}; 80 % of the bound: "
                f"{', '.join(within) or 'none of them'}"
            )
        keys = ("variant", "load", "bound", "goodput", "retransmission_ratio", "p50_ms", "p99_ms", "rejected")
        medians = ({key: row[key] for key in (*keys, "generator_load", "drops")} for row in rows)
        flat = [{key: v["median"] if isinstance(v, dict) else v for key, v in row.items()} for row in medians]
        self.rows("results", flat)
        return {"lost": lost_of}
