"""000's and 001's rows that one server can show, simulated: claim by claim, reproduced or not

scenarios/paper-000-*.toml: SER that drops what occupancy, ARO or SiRED do not allow, of all
messages alike or of INVITEs only, with and without retransmissions, under constant, gradual and
instant overload, offered 1.2 and 2.5 times the capacity, and with SIPp's limit of open calls.
scenarios/paper-001.toml and paper-001-occ.toml: Kamailio under PI, OCC and Ohta. Five seeds of each
point; the median counts, and the range of the five is in brackets. Each verdict is a condition, and
is asked again of numbers that must change it. `--only 000` or `--only 001` runs the rows of one paper.
"""

import argparse
from typing import Any

from tidegate_bench import paper_000, paper_001
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.experiment import Points, Run
from tidegate_bench.paper_000 import CLAIMED, LAWS, PROFILES, SETTINGS, Calls, Passed, Place, settings_of
from tidegate_bench.paper_001 import LOADS, Shapes, Traces
from tidegate_bench.record import Record
from tidegate_bench.verdicts import judge_all


def calls_000(record: Record) -> Calls:
    """Runs each experiment of which there is a claim, and prints it."""
    calls: dict[tuple[str, Place, str], paper_000.Cell] = {}
    print("\ncalls set up a second / mean set-up delay, ms; calls that were not begun")
    print(f"  {'':<60}" + "".join(f"{law:>24}" for law in LAWS))
    for place in CLAIMED:
        for name in settings_of(place):
            run = run_000(record, name, place)
            cells = []
            for law in LAWS:
                outcomes = [point["outcome"] for point in run.of(law)]
                cell = paper_000.Cell(
                    tuple(paper_000.set_up_cps(outcome) for outcome in outcomes),
                    tuple(paper_000.delay_ms(outcome) for outcome in outcomes),
                )
                calls[name, place, law] = cell
                held = paper_000.middle(tuple(not_begun(outcome) for outcome in outcomes))
                cells.append(f"{paper_000.middle(cell.cps):7.0f} /{paper_000.middle(cell.delay_ms):6.0f};{held:7.0f}")
            how = f"{place.scheme}, {place.profile}{'' if place.retransmissions else ', once'}: {SETTINGS[name].what}"
            print(f"  {how:<60}" + "".join(f"{cell:>24}" for cell in cells), flush=True)
    return calls


def run_000(record: Record, name: str, place: Place) -> Run:
    profile, measured_s = PROFILES[place.profile]
    setting = SETTINGS[name]
    return Run(
        record,
        f"paper-000-{place.scheme}",
        retransmissions=str(place.retransmissions).lower(),
        profile=f'"{profile}"',
        measured_s=str(measured_s),
        load=f"[{setting.load}]",
        open_max=str(setting.open_max(paper_000.CAPACITY_CPS)),
    )


def not_begun(outcome: dict[str, Any]) -> float:
    """The calls that the generator did not begin, because too many others were open."""
    return float(sum(callers["stats"]["not_begun"] for callers in outcome["callers"]))


def passed_000(run: Run) -> list[Passed]:
    """§6.7.1: of a call the INVITE and the 200 must pass to set it up, and BYE and 200 to end it."""
    rows = []
    for percent in (90, 80, 70, 50):
        points = run.of(f"f = .{percent // 10}", load=0.8)
        stats = [callers["stats"] for p in points for callers in p["outcome"]["callers"]]
        begun = sum(s["begun"] for s in stats)
        up, done = (sum(s[key] for s in stats) / begun for key in ("set_up", "completed"))
        rows.append(Passed(percent / 100, up, done))
    return rows


def cell_001(points: Points, capacity_cps: float) -> paper_001.Cell:
    outcomes = [point["outcome"] for point in points]
    return paper_001.Cell(
        tuple(o["good"] / o["measured_s"] / capacity_cps for o in outcomes),
        tuple(o["repeated_invites"] / max(1, o["offered"]) for o in outcomes),
        tuple(paper_000.delay_ms(o) for o in outcomes),
    )


def shapes_001(record: Record) -> Shapes:
    run, occ = Run(record, "paper-001"), Run(record, "paper-001-occ")
    sizes = sorted({point["swept"]["queue_max"] for point in occ.points})
    cells = {
        (label, load): cell_001(run.of(label, load=load), run.capacity_cps)
        for label in ("pi 80 %", "pi 90 %", "ohta")
        for load in LOADS
    }
    buffers = {
        (size, label, load): cell_001(occ.of(label, load=load, queue_max=size), occ.capacity_cps)
        for size in sizes
        for label in ("occ 80 %", "occ 90 %")
        for load in LOADS
    }
    cells |= {(label, load): cell for (size, label, load), cell in buffers.items() if size == sizes[0]}
    for key, title in (
        ("goodput", "goodput ÷ C"),
        ("repeated", "repeated INVITEs a call"),
        ("delay_ms", "mean set-up delay, ms"),
    ):
        print(f"\n001: {title}\n  {'r':<24}" + "".join(f"{load:>8}" for load in LOADS))
        curves = {label: [cells[label, load] for load in LOADS] for label in ("pi 80 %", "pi 90 %", "ohta")}
        for size, label in sorted({key[:2] for key in buffers}):
            curves[f"{label}, buffer {size:g}"] = [buffers[size, label, load] for load in LOADS]
        for label, curve in curves.items():
            middle = (paper_000.middle(getattr(cell, key)) for cell in curve)
            print(f"  {label:<24}" + "".join(f"{value:>8.2f}" for value in middle))
    full = [time_full(occ.timeline(p, "occupancy")) for p in occ.of("occ 90 %", load=1.57, queue_max=sizes[0])]
    waiting = [late(run, p, "waiting") for p in run.of("ohta", load=1.05)]
    used = [late(run, p, "occupancy") for p in run.of("pi 80 %", load=1.57)]
    traces = Traces(
        tuple(full), tuple(max(w) - min(w) for w in waiting), tuple(sum(values) / len(values) for values in used)
    )
    return Shapes(cells, buffers, traces)


def late(run: Run, point: dict[str, Any], quantity: str) -> list[float]:
    """The samples from 20 s on."""
    return [value for t, value in run.timeline(point, quantity) if t >= 20]


def time_full(occupancy: list[tuple[float, float]]) -> float:
    """Seconds from the start until the processor is first not full, once it was."""
    began = next((t for t, value in occupancy if value >= 0.98), None)
    if began is None:
        return 0.0
    ended = next((t for t, value in occupancy if t > began and value < 0.95), occupancy[-1][0])
    return ended - began


class Show(Demonstration):
    ROUNDS = None

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", choices=("000", "001"), help="the rows of one paper")

    def run(self) -> Results:
        claims = []
        if self.options.only != "001":
            calls = calls_000(self)
            passed = passed_000(Run(self, "paper-000-formula"))
            print()
            claims += judge_all(self, paper_000.CLAIMS, calls) + judge_all(self, paper_000.FORMULA, passed)
            self.rows(
                "calls-000",
                [
                    {
                        "setting": setting,
                        **place._asdict(),
                        "law": law,
                        "run": run,
                        "set_up_cps": cps,
                        "delay_ms": delay,
                    }
                    for (setting, place, law), cell in calls.items()
                    for run, (cps, delay) in enumerate(zip(cell.cps, cell.delay_ms, strict=True))
                ],
            )
            self.rows("formula-000", [row._asdict() for row in passed])
        if self.options.only != "000":
            shapes = shapes_001(self)
            print()
            claims += judge_all(self, paper_001.CLAIMS, shapes)
            self.rows(
                "shapes-001",
                [
                    {"variant": label, "load": load, "run": run, "goodput": g, "repeated": r, "delay_ms": d}
                    for (label, load), cell in shapes.cells.items()
                    for run, (g, r, d) in enumerate(zip(*cell, strict=True))
                ],
            )
        self.rows("claims", claims)
        return {}
