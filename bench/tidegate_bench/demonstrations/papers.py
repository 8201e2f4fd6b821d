"""000's and 001's rows that one server can show, simulated: claim by claim, reproduced or not

scenarios/paper-000-*.toml: SER that drops what occupancy, ARO or SiRED do not allow, of all
messages alike or of INVITEs only, with and without retransmissions, under constant, gradual and
instant overload. scenarios/paper-001.toml: Kamailio under PI, OCC and Ohta. Three and five runs of
each point; the median counts. A row is a condition if it is known to be reproduced.
"""

import statistics
from math import inf
from typing import Any

from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.experiment import Points, Run
from tidegate_bench.record import Record
from tidegate_bench.verdicts import Verdicts, graded

# 000 §6.4: the rate over time, as a factor on the highest, and for how long statistics are kept;
# of the second 120 s, here all of it.
PROFILES = {"constant": ("steps:0=0.6", 60), "gradual": ("gradual:50,30,50", 120), "instant": ("instant:10", 30)}
T1_MS = 500
LAWS_000 = ("basic", "occupancy", "sired", "aro")


def median(points: Points, key: str) -> float:
    return statistics.median(figure(point["outcome"], key) for point in points)


def figure(outcome: dict[str, Any], key: str) -> float:
    callers = [callers["stats"] for callers in outcome["callers"]]
    match key:
        case "cps":
            return outcome["set_up"] / outcome["measured_s"]
        case "goodput":
            return outcome["good"] / outcome["measured_s"]
        case "delay_ms":
            whole = sum(stats["set_up_delay"]["count"] for stats in callers)
            time = sum(s["set_up_delay"]["count"] * s["set_up_delay"]["mean_us"] for s in callers)
            return time / 1e3 / whole if whole else inf
        case "repeated":
            return outcome["repeated_invites"] / max(1, outcome["offered"])
    raise ValueError(key)


def calls_000(verdicts: Verdicts, record: Record) -> list[dict[str, Any]]:
    rows = []
    table: dict[tuple[str, bool, str, str], tuple[float, float]] = {}
    for scheme in ("single", "simplified"):
        print(f"\n{scheme} class: calls set up a second / mean set-up delay, ms")
        print(f"  {'':<26}" + "".join(f"{law:>18}" for law in LAWS_000))
        for again in (True, False):
            for name, (profile, measured_s) in PROFILES.items():
                run = Run(
                    record,
                    f"paper-000-{scheme}",
                    retransmissions=str(again).lower(),
                    profile=f'"{profile}"',
                    measured_s=str(measured_s),
                )
                cells = []
                for law in LAWS_000:
                    points = run.of(law)
                    cps, delay = median(points, "cps"), median(points, "delay_ms")
                    table[scheme, again, name, law] = (cps, delay)
                    cells.append(f"{cps:9.0f} /{delay:7.1f}")
                    rows.append(
                        {
                            "scheme": scheme,
                            "retransmissions": again,
                            "profile": name,
                            "law": law,
                            "set_up_cps": cps,
                            "delay_ms": delay,
                            "cps_all": [figure(p["outcome"], "cps") for p in points],
                        }
                    )
                how = f"{name}{'' if again else ', no repetitions'}"
                print(f"  {how:<26}" + "".join(f"{cell:>18}" for cell in cells))
    print()

    def row(scheme: str, again: bool, name: str) -> dict[str, tuple[float, float]]:
        return {law: table[scheme, again, name, law] for law in LAWS_000}

    def show(seen: dict[str, tuple[float, float]], of: int) -> str:
        return ", ".join(f"{law} {value[of]:.0f}" for law, value in seen.items())

    seen = row("single", True, "constant")
    rates = {law: value[0] for law, value in seen.items()}
    between = rates["basic"] > max(rates["occupancy"], rates["sired"])
    alike = abs(rates["occupancy"] - rates["sired"]) <= 0.15 * rates["occupancy"]
    last = rates["aro"] < min(rates["occupancy"], rates["sired"])
    verdict = graded(between and alike and last, between or last)
    verdicts.say(
        "000:568 calls/s, constant, single: basic > occupancy ≈ SiRED > ARO", verdict, show(seen, 0), known=False
    )
    delays = {law: value[1] for law, value in seen.items()}
    order = delays["aro"] > delays["sired"] > max(delays["basic"], delays["occupancy"])
    verdicts.say(
        "000:572 delay low, low, 500, 1,250 ms (basic, occupancy, SiRED, ARO)",
        "reproduced" if order else "partly" if delays["aro"] == max(delays.values()) else "not",
        show(seen, 1),
        known=False,
    )

    seen = row("single", False, "constant")
    fell = [law for law in ("aro", "occupancy") if seen[law][0] <= 0.1 * seen["basic"][0]]
    verdicts.say(
        "000:639 without repetitions ARO and occupancy fall to 0 (18,000 open calls)",
        graded(len(fell) == 2, len(fell) == 1),
        show(seen, 0),
        known=False,
    )
    ratio = seen["sired"][0] / seen["basic"][0]
    lower = seen["sired"][1] < seen["basic"][1]
    verdicts.say(
        "000:681 SiRED ≈ basic in calls/s at lower delay, no repetitions, single",
        graded(ratio >= 0.9 and lower, ratio >= 0.9 or lower),
        f"calls/s {ratio:.2f} of basic, delay {seen['sired'][1]:.0f} ms, basic {seen['basic'][1]:.0f}",
        known=False,
    )

    seen = row("simplified", True, "instant")
    ratio = seen["occupancy"][0] / seen["basic"][0]
    verdicts.say(
        "000:754 occupancy above basic, instant, simplified",
        graded(ratio > 1.02, ratio >= 0.98),
        show(seen, 0),
        known=False,
    )
    seen = row("simplified", True, "gradual")
    ratio = seen["sired"][0] / seen["basic"][0]
    verdicts.say(
        "000:727 SiRED's calls/s 15-20 % below basic, gradual, simplified",
        graded(0.75 <= ratio <= 0.9, ratio < 0.98),
        f"{ratio - 1:+.0%}",
        known=False,
    )
    for name, claim, most, slowest in (
        (
            "constant",
            "000:785 without repetitions, constant: occupancy / SiRED -15 / -25 % calls/s, delay 1/2 and 1/5",
            0.35,
            (0.6, 0.3),
        ),
        ("instant", "000:820 without repetitions, instant: delay below 1/10, calls/s alike", 0.1, (0.1, 0.1)),
    ):
        seen = row("simplified", False, name)
        part = [seen[law][0] / seen["basic"][0] for law in ("occupancy", "sired")]
        slow = [seen[law][1] / seen["basic"][1] for law in ("occupancy", "sired")]
        kept = all(p >= 1 - most for p in part)
        quick = all(s <= d for s, d in zip(slow, slowest, strict=True))
        verdicts.say(
            claim,
            graded(kept and quick, kept or quick),
            "calls/s " + " / ".join(f"{p - 1:+.0%}" for p in part) + ", delay " + " / ".join(f"{s:.2f}" for s in slow),
            known=False,
        )
    return rows


def formula_000(verdicts: Verdicts, run: Run) -> list[dict[str, Any]]:
    """§6.7.1: of a call the INVITE and the 200 must pass to set it up, and BYE and 200 to end it."""
    rows = []
    for percent in (90, 80, 70, 50):
        points = run.of(f"f = .{percent // 10}", load=0.8)
        f = percent / 100
        stats = [callers["stats"] for p in points for callers in p["outcome"]["callers"]]
        begun = sum(s["begun"] for s in stats)
        up = sum(s["set_up"] for s in stats) / begun
        done = sum(s["completed"] for s in stats) / begun
        rows.append({"f": f, "set_up": up, "f2": f**2, "completed": done, "f4": f**4})
    worst = max(max(abs(r["set_up"] - r["f2"]), abs(r["completed"] - r["f4"])) for r in rows)
    numbers = "; ".join(
        f"f {r['f']}: {r['set_up']:.3f} ({r['f2']:.3f}), {r['completed']:.3f} ({r['f4']:.3f})" for r in rows
    )
    verdicts.say(
        "000 §6.7.1: a call is set up with f², completed with f⁴",
        graded(worst <= 0.03, worst <= 0.1),
        numbers,
        known=True,
    )
    return rows


def shapes_001(verdicts: Verdicts, run: Run) -> list[dict[str, Any]]:
    labels = ("pi 80 %", "pi 90 %", "occ 80 %", "occ 90 %", "ohta")
    loads = sorted({point["swept"]["load"] for point in run.points})
    rows = [
        {
            "variant": label,
            "load": load,
            **{key: median(run.of(label, load=load), key) for key in ("goodput", "delay_ms", "repeated")},
        }
        for label in labels
        for load in loads
    ]
    for row in rows:
        row["goodput"] /= run.capacity_cps
    at = {(row["variant"], row["load"]): row for row in rows}
    for key, title in (
        ("goodput", "goodput ÷ C"),
        ("repeated", "repeated INVITEs a call"),
        ("delay_ms", "mean set-up delay, ms"),
    ):
        print(f"\n001: {title}\n  {'r':<10}" + "".join(f"{load:>8}" for load in loads))
        for label in labels:
            print(f"  {label:<10}" + "".join(f"{at[label, load][key]:>8.2f}" for load in loads))
    print()

    def first_below(label: str, part: float) -> float:
        """The least rate at which the goodput is below this part of what PI keeps at 1."""
        return next((load for load in loads if load > 1 and at[label, load]["goodput"] < part), inf)

    near2 = 2.09
    kept = at["pi 90 %", near2]["goodput"]
    verdicts.say(
        "001:124 pi keeps a goodput of 0.4 at r = 2",
        graded(kept >= 0.35, kept >= 0.2),
        f"{kept:.2f} at {near2} (90 %), {at['pi 80 %', near2]['goodput']:.2f} (80 %)",
        known=True,
    )
    end = first_below("pi 90 %", 0.2)
    verdicts.say("001:162 pi handles r up to 2.3", graded(end > 2.3, end > 1.8), f"below .2 from {end} on", known=True)
    # Repeated by then, the calls of an overloaded server overload it more.
    ends = {
        label: next((load for load in loads if at[label, load]["delay_ms"] > T1_MS), inf)
        for label in ("occ 80 %", "occ 90 %")
    }
    verdicts.say(
        "001:124 OCC at 90 % degrades above 1.3, at 80 % it holds to 1.7",
        "reproduced"
        if ends == {"occ 80 %": 1.83, "occ 90 %": 1.57}
        else "partly"
        if ends["occ 90 %"] < ends["occ 80 %"]
        else "not",
        f"the mean delay is above T1 from {ends['occ 90 %']} and {ends['occ 80 %']} on",
        known=True,
    )
    drop = at["ohta", 0.79]["goodput"] - at["ohta", 1.31]["goodput"]
    verdicts.say(
        "001:139 Ohta falls like a step above 1",
        graded(drop >= 0.4, drop >= 0.15),
        f"{at['ohta', 0.79]['goodput']:.2f} at .79, {at['ohta', 1.05]['goodput']:.2f} at "
        f"1.05, {at['ohta', 1.31]['goodput']:.2f} at 1.31",
        known=True,
    )
    repeated = max(at[label, near2]["repeated"] for label in ("pi 80 %", "pi 90 %"))
    verdicts.say(
        "001:141 pi: fewer than .1 repetitions a call at r = 2",
        graded(repeated < 0.1, repeated < 0.3),
        f"{repeated:.2f} at {near2}",
        known=True,
    )
    delays = [at["pi 80 %", load]["delay_ms"] for load in loads]
    over = [delay for load, delay in zip(loads, delays, strict=True) if load > 1]
    verdicts.say(
        "001:141 pi: response time 50 ms at every r",
        graded(all(25 <= delay <= 100 for delay in delays), all(25 <= delay <= 100 for delay in over[:5])),
        f"{min(delays):.0f} to {max(delays):.0f} ms",
        known=True,
    )

    loads_157 = run.of("occ 90 %", load=1.57)
    full = statistics.median(time_full(run.timeline(p, "occupancy")) for p in loads_157)
    verdicts.say(
        "001:158 OCC is slow: the processor is full for 25 s at r = 1.57",
        graded(10 <= full <= 60, full >= 5),
        f"{full:.0f} s (target 90 %)",
        known=True,
    )
    waiting = [[v for t, v in run.timeline(p, "waiting") if t >= 20] for p in run.of("ohta", load=1.05)]
    swing = statistics.median(max(w) - min(w) for w in waiting)
    verdicts.say(
        "001:158 Ohta's queue oscillates at r = 1.1",
        graded(swing >= 300, swing >= 100),
        f"it swings by {swing:.0f} messages at 1.05",
        known=True,
    )
    track = [[v for t, v in run.timeline(p, "occupancy") if t >= 20] for p in run.of("pi 80 %", load=1.57)]
    held = statistics.median(statistics.mean(values) for values in track)
    verdicts.say(
        "001:148 pi: C tracks its target at r = 1.57",
        graded(abs(held - 0.8) <= 0.05, abs(held - 0.8) <= 0.1),
        f"C is {held:.2f} on the mean, the target .80",
        known=False,
    )
    return rows


def time_full(occupancy: list[tuple[float, float]]) -> float:
    """Seconds from the start until the processor is first not full, once it was."""
    began = next((t for t, value in occupancy if value >= 0.98), None)
    if began is None:
        return 0.0
    ended = next((t for t, value in occupancy if t > began and value < 0.95), occupancy[-1][0])
    return ended - began


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        verdicts = Verdicts(self)
        calls = calls_000(verdicts, self)
        formula = formula_000(verdicts, Run(self, "paper-000-formula"))
        shapes = shapes_001(verdicts, Run(self, "paper-001"))
        self.rows("calls-000", calls)
        self.rows("formula-000", formula)
        self.rows("shapes-001", shapes)
        self.rows("claims", verdicts.all)
        return {}
