"""Runs of scenarios with a farm: their numbers, and what 003 makes of them."""

import statistics
from math import inf
from typing import Any

from tidegate_bench.experiment import Run

# 003 §VI.b: "while successfully handling more than 99.99% of all requests".
HANDLED = 0.9999

Row = dict[str, Any]


class Farm:
    """Every run of every scenario, a row each."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def of(self, scenario: str, label: str, **swept: float) -> list[Row]:
        found = [
            row
            for row in self.rows
            if row["scenario"] == scenario
            and row["label"] == label
            and all(row[key] == value for key, value in swept.items())
        ]
        if not found:
            raise SystemExit(f"{scenario}, {label}, {swept}: no run")
        return found

    def median(self, scenario: str, label: str, key: str, **swept: float) -> float:
        return statistics.median(row[key] for row in self.of(scenario, label, **swept))

    def peak(self, scenario: str, label: str, **swept: float) -> float:
        """The highest rate, in calls/s, up to which requests were handled at each that was run."""
        rows = self.of(scenario, label, **swept)
        best = 0.0
        for load in sorted({row["load"] for row in rows}):
            at = [row for row in rows if row["load"] == load]
            if statistics.median(row["handled"] for row in at) <= HANDLED:
                break
            best = load * at[0]["capacity_cps"]
        return best

    def tail(self, label: str, part: float, **swept: float) -> int:
        """The occupancy that this part of the requests did not exceed, all runs together."""
        counts: list[int] = []
        for row in self.of("response", label, **swept):
            counts += [0] * (len(row["occupancy"]) - len(counts))
            for index, count in enumerate(row["occupancy"]):
                counts[index] += count
        total, seen = sum(counts), 0
        for index, count in enumerate(counts):
            seen += count
            if seen >= part * total:
                return index
        return len(counts)


def rows_of(name: str, run: Run, of: str | None = None) -> list[Row]:
    """The runs of a scenario, with the name `of`."""
    rows = []
    for point in run.points:
        outcome = point["outcome"]
        measured = outcome["callers"][0]["stats"]["measured"]
        handled = outcome["requests_handled"] / max(1, outcome["requests"])
        rows.append(
            {
                "scenario": of or name,
                "label": point["variant"].rpartition(" (")[0],
                "load": 1.0,
                "pause_ms": 0.0,
                **point["swept"],
                "seed": point["seed"],
                "capacity_cps": point["capacity_cps"],
                "handled": handled,
                "invite_ms": mean_ms(measured["set_up_delay"]),
                "bye_ms": mean_ms(measured["bye_delay"]),
                "invite_p50_ms": measured["set_up_delay"]["p50_us"] / 1e3,
                "invite_p99_ms": measured["set_up_delay"]["p99_us"] / 1e3,
                "bye_p50_ms": measured["bye_delay"]["p50_us"] / 1e3,
                "bye_p99_ms": measured["bye_delay"]["p99_us"] / 1e3,
                "goodput": outcome["good"] / outcome["measured_s"] / point["capacity_cps"],
                "repeated": outcome["repeated_invites"] / max(1, outcome["offered"]),
                "shares": shares(outcome),
                "occupancy": outcome["occupancy"],
                "too_slow": outcome["generator"]["too_slow"] is not None,
            }
        )
    return rows


def mean_ms(delays: dict[str, float]) -> float:
    """Infinite where nothing was answered."""
    return delays["mean_us"] / 1e3 if delays["count"] else inf


def shares(outcome: dict[str, Any]) -> list[float]:
    """The part of the INVITEs that each server got."""
    servers = [n for n in outcome["nodes"] if n["node"].startswith("server-")]
    got = [node["received"].get("invite", 0) for node in servers]
    return [round(count / max(1, sum(got)), 4) for count in got]
