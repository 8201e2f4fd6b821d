"""003's rows: balancing policies before farms of servers, claim by claim, reproduced or not

scenarios/paper-003-*.toml, simulated, five runs of each point: peak throughput by the 99.99 %
rule, response times of INVITE and BYE, occupancy, 1 to 10 servers, two unequal ones, estimated
against true costs, hold times, service times that vary; and two servers that refuse (paper-002-cascade.toml and
paper-002-front.toml). Then one of them on real sockets, beside the same simulated. Each verdict is also
asked of numbers that must change it. `--rounds 1` makes one run of each point instead of five. `--quick`
makes one of a second each, to see whether it works: its verdicts mean nothing.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from math import exp, log
from typing import Any, NamedTuple

from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.experiment import Run
from tidegate_bench.farm import Farm, Row, rows_of
from tidegate_bench.record import Record

PAPER = ("TLWL-1.75", "TLWL-2", "TJSQ", "CJSQ", "Hash", "FNV Hash", "RR")
MORE = ("RWMA", "P2C", "Peak-EWMA", "Rendezvous")
AWARE = ("TLWL-1.75", "TLWL-2", "TJSQ")
BLIND = ("Hash", "FNV Hash", "RR")
NODE_CPS = 300.0
# Real runs at once: each takes a fifth of a core.
REAL_JOBS = 3
# How calls come to two servers that share load, by the scenario and what is changed in it.
WAYS = {
    "alone": "callers who give up",
    "failover": "callers who fail over",
    "handed": "a Tidegate that hands on",
    "front": "one that fails over",
    "limited": "one that admits 175 calls/s",
}
LIGHT = (0.25, 0.5)
HEAVY = (0.9, 0.95)

# The emulated servers have that capacity, and share nothing.
CONSTRUCTED = "by construction"

# Alters all runs.
Planted = Callable[[list[Row]], list[Row]]


class Seen(NamedTuple):
    """What is said of a claim, and by which numbers."""

    verdict: str
    numbers: str


class Claim(NamedTuple):
    """A claim of the paper, what is known of it, and numbers that must change that."""

    claim: str
    expected: str
    why: str
    judge: Callable[["Farm"], Seen]
    planted: Planted
    label: str = ""
    """`by construction`, if the emulated servers make the claim hold."""


# What is said of each claim.


def graded(whole: bool, half: bool, numbers: str) -> Seen:
    return Seen("reproduced" if whole else "partly" if half else "not", numbers)


def one_node(farm: Farm) -> Seen:
    peak = farm.peak("scaling", "TLWL-1.75", nodes=1)
    return graded(0.9 <= peak / NODE_CPS <= 1.02, peak > 200, f"{peak:.0f}")


def eight_nodes(farm: Farm) -> Seen:
    peak = farm.peak("peak", "TLWL-1.75")
    return graded(peak >= 0.95 * 8 * NODE_CPS, peak >= 0.8 * 8 * NODE_CPS, f"{peak:.0f}")


def order(farm: Farm) -> Seen:
    equal = {label: farm.peak("peak", label) for label in PAPER}
    other = {label: farm.peak("unequal", label) for label in PAPER}
    delay = {label: farm.median("response", label, "invite_ms", load=0.95, pause_ms=0) for label in PAPER}
    aware, blind = min(equal[label] for label in AWARE), max(equal[label] for label in BLIND)
    ranked = equal["TLWL-1.75"] >= equal["TLWL-2"] >= equal["TJSQ"]
    first = min(other[label] for label in AWARE) > max(other[label] for label in ("CJSQ", *BLIND))
    quickest = max(delay[label] for label in AWARE) < min(delay[label] for label in ("CJSQ", *BLIND))
    numbers = ", ".join(f"{label} {equal[label]:.0f} and {other[label]:.0f}, {delay[label]:.1f} ms" for label in PAPER)
    return graded(
        ranked and aware > equal["CJSQ"] > blind,
        first and quickest,
        f"eight equal and two unequal servers, INVITE delay at 0.95: {numbers}",
    )


def times(farm: Farm, scenario: str, loads: Sequence[float], pause_ms: float) -> list[float]:
    """By how much the quickest of the others is slower than the slowest that sees transactions."""

    def delay(label: str, load: float) -> float:
        return farm.median(scenario, label, "invite_ms", load=load, pause_ms=pause_ms)

    return [
        min(delay(label, load) for label in ("CJSQ", *BLIND)) / max(delay(label, load) for label in AWARE)
        for load in loads
    ]


def lower(loads: Sequence[float], pause_ms: float, least: float, scenario: str = "response") -> Callable[[Farm], Seen]:
    def judge(farm: Farm) -> Seen:
        seen = times(farm, scenario, loads, pause_ms)
        at = zip(loads, seen, strict=True)
        numbers = ", ".join(f"{value:.1f} times at {load:g}" for load, value in at)
        return graded(min(seen) >= least, max(seen) >= least or min(seen) >= least / 3, numbers)

    return judge


def tjsq_near(farm: Farm) -> Seen:
    loads = sorted({row["load"] for row in farm.of("response", "TJSQ")})
    ratios = [
        farm.median("response", "TJSQ", "invite_ms", load=load, pause_ms=0)
        / farm.median("response", "TLWL-1.75", "invite_ms", load=load, pause_ms=0)
        for load in loads
    ]
    at = zip(loads, ratios, strict=True)
    numbers = ", ".join(f"{ratio:.2f} at {load:g}" for load, ratio in at)
    return graded(max(ratios) <= 1.25, max(ratios) <= 2, numbers)


def best_ratio(farm: Farm) -> Seen:
    labels = sorted({row["label"] for row in farm.rows if row["scenario"] == "ratio"})
    labels = [label for label in labels if label.startswith("TLWL-")]
    whole, half, numbers = True, True, []
    for load in HEAVY:

        def delay(label: str, load: float = load) -> float:
            return farm.median("ratio", label, "invite_ms", load=load, invite_to_bye=1.75)

        best = min(labels, key=delay)
        whole &= best == "TLWL-1.75"
        half &= delay("TLWL-1.75") <= 1.05 * delay(best)
        numbers.append(
            f"at {load:g}: {best} {delay(best):.2f} ms, TLWL-1.75 "
            f"{delay('TLWL-1.75'):.2f}, TLWL-1 {delay('TLWL-1'):.2f}, TLWL-3 "
            f"{delay('TLWL-3'):.2f}"
        )
    return graded(whole, half, "; ".join(numbers))


def long_tail(farm: Farm) -> Seen:
    aware = {label: farm.tail(label, 0.999, load=0.9, pause_ms=0) for label in AWARE}
    blind = {label: farm.tail(label, 0.999, load=0.9, pause_ms=0) for label in BLIND}
    numbers = ", ".join(f"{label} {tail}" for label, tail in (aware | blind).items())
    least, most = min(blind.values()), max(aware.values())
    return graded(least >= 3 * most, least > most, f"99.9 % at 0.9: {numbers}")


def scaling(farm: Farm) -> Seen:
    nodes = sorted({row["nodes"] for row in farm.of("scaling", "TLWL-1.75")})
    peaks = {n: farm.peak("scaling", "TLWL-1.75", nodes=n) for n in nodes}
    parts = [peak / n for n, peak in peaks.items()]
    whole = max(nodes) == 10 and min(parts) >= 0.95 * parts[0] > 0
    numbers = ", ".join(f"{n:g}: {peak:.0f}" for n, peak in peaks.items())
    return graded(whole, min(parts) >= 0.8 * parts[0] > 0, numbers)


def goodput(farm: Farm, way: str, load: float) -> float:
    return farm.median(f"cascade-{way}", "pi", "goodput", load=load)


def cascade(farm: Farm) -> Seen:
    numbers = "; ".join(
        f"{what} {goodput(farm, way, 1):.2f}, {goodput(farm, way, 2):.2f}, {goodput(farm, way, 4):.2f}"
        for way, what in WAYS.items()
    )
    collapse = goodput(farm, "failover", 4) <= 0.2
    kept = all(goodput(farm, "limited", load) >= 0.8 for load in (1, 2, 4))
    return graded(collapse and kept, collapse or kept, f"goodput ÷ C at 1, 2, 4: {numbers}")


def carried_over(farm: Farm) -> Seen:
    """Whether callers who fail over have less, at some load, than those who do not."""
    load = worst_load(farm, "failover", "alone")
    less, more = goodput(farm, "failover", load), goodput(farm, "alone", load)
    return graded(
        less <= 0.8 * more,
        less <= 0.95 * more,
        f"at {load:g}, goodput ÷ C {less:.2f} with failover, {more:.2f} without",
    )


def passed_over(farm: Farm) -> Seen:
    load = worst_load(farm, "front", "handed")
    less, more = goodput(farm, "front", load), goodput(farm, "handed", load)
    return graded(
        less >= 0.95 * more, less >= 0.8 * more, f"at {load:g}, the worst, {less:.2f} with failover, {more:.2f} without"
    )


def worst_load(farm: Farm, way: str, beside: str) -> float:
    """At which load the goodput in this way is least beside the other."""
    loads = sorted({row["load"] for row in farm.of(f"cascade-{way}", "pi")})
    return min(loads, key=lambda load: goodput(farm, way, load) - goodput(farm, beside, load))


def unequal(farm: Farm) -> Seen:
    peaks = {label: farm.peak("unequal", label) for label in PAPER}
    aware = min(peaks[label] for label in AWARE)
    blind = max(peaks[label] for label in BLIND)
    numbers = ", ".join(f"{label} {peak:.0f}" for label, peak in peaks.items())
    return graded(aware >= 0.9 * 450 and blind <= 1.05 * 300, aware > blind, numbers)


# Numbers that must change a verdict.


def each(change: Callable[[Row], Row]) -> Planted:
    """The same runs, with other values of some keys."""
    return lambda rows: [row | change(row) for row in rows]


def swapped(*pairs: tuple[str, str]) -> Planted:
    """The same runs, in which policies bear each other's names."""
    names = {a: b for pair in pairs for a, b in (pair, pair[::-1])}
    return each(lambda row: {"label": names.get(row["label"], row["label"])})


def all_like(label: str) -> Planted:
    """The same runs, in which every policy did what this one did."""

    def planted(rows: list[Row]) -> list[Row]:
        def place(row: Row) -> tuple[Any, ...]:
            return tuple(row.get(k) for k in ("scenario", "load", "pause_ms", "nodes", "seed", "invite_to_bye"))

        model = {place(row): row for row in rows if row["label"] == label}
        return [{**model.get(place(row), row), "label": row["label"]} for row in rows]

    return planted


def slower(by: float, *labels: str) -> Planted:
    return each(lambda row: {"invite_ms": row["invite_ms"] * (by if row["label"] in labels else 1)})


def unhandled(above: float) -> Planted:
    """The same runs, in which some requests were not handled above this load."""
    return each(lambda row: {"handled": row["handled"] if row["load"] <= above else 0.999})


def way_of(way: str, like: str) -> Planted:
    """The same runs, in which this way to meet refusals did what the other did."""
    return lambda rows: [
        *(row for row in rows if row["scenario"] != f"cascade-{way}"),
        *(row | {"scenario": f"cascade-{way}"} for row in rows if row["scenario"] == f"cascade-{like}"),
    ]


def halved(way: str) -> Planted:
    """The same runs, with half of the goodput in this way."""
    return each(lambda row: {"goodput": row["goodput"] * (0.5 if row["scenario"] == f"cascade-{way}" else 1)})


# The same runs, in which ten servers handled less.
unscaled = each(lambda row: {"handled": 0.5 if row.get("nodes") == 10 else row["handled"]})


CLAIMS = [
    Claim("003 §VI.b: one node handles about 300 calls/s", "reproduced", "", one_node, unhandled(0.5), CONSTRUCTED),
    Claim(
        "003 §VI.b, figure 5: eight nodes: the ideal is 2,400 calls/s",
        "reproduced",
        "",
        eight_nodes,
        unhandled(0.5),
        CONSTRUCTED,
    ),
    Claim(
        "003 §VII, figure 5: throughput and delay: TLWL-1.75, TLWL-2, TJSQ, then CJSQ, hash, FNV and RR",
        "partly",
        "of equal servers that are not beyond their capacity, each policy has all handled",
        order,
        all_like("RR"),
    ),
    Claim(
        "003 §VII: INVITE delay 1/5 or less, light and moderate load; servers never pause",
        "not",
        "a server that only queues is hardly slower at half its capacity than an idle one, "
        "whoever chooses: there is nothing to gain",
        lower(LIGHT, 0, 5),
        slower(100, "CJSQ", *BLIND),
    ),
    Claim(
        "003 §VII: INVITE delay 1/5 or less; servers pause half a second every ten",
        "partly",
        "who counts calls learns of a pause only from calls that do not end",
        lower(LIGHT, 500, 5),
        all_like("RR"),
    ),
    Claim(
        "003 §VII: two orders lower under heavy load; servers never pause",
        "not",
        "equal servers of constant costs are all below their capacity, whoever chooses: two "
        "orders need one that is beyond it",
        lower(HEAVY, 0, 100),
        slower(1000, "CJSQ", *BLIND),
    ),
    Claim(
        "003 §VII: two orders lower under heavy load; servers pause half a second every ten",
        "not",
        "the same; a pause holds up what was assigned before it, whoever chooses",
        lower(HEAVY, 500, 100),
        slower(1000, "CJSQ", *BLIND),
    ),
    Claim(
        "003 §VII: INVITE delay 1/5 or less, light and moderate load; service times vary (CV² = 10)",
        "partly",
        "",
        lower(LIGHT, 0, 5, "varied"),
        all_like("RR"),
    ),
    Claim(
        "003 §VII: two orders lower under heavy load; service times vary (CV² = 10)",
        "not",
        "",
        lower(HEAVY, 0, 100, "varied"),
        slower(1000, "CJSQ", *BLIND),
    ),
    Claim("003 §IV: TJSQ's delay is nearly that of TLWL-1.75", "reproduced", "", tjsq_near, slower(3, "TJSQ")),
    Claim(
        "003 §IV: 1.75 is the best ratio where INVITEs cost 1.75 times as much as BYEs",
        "partly",
        "estimates around the true one differ by less than the runs do",
        best_ratio,
        slower(0.5, "TLWL-1.75"),
    ),
    Claim(
        "003 §VI.c: the occupancy of hash, FNV and RR has a long tail",
        "partly",
        "",
        long_tail,
        swapped(("RR", "TLWL-1.75"), ("Hash", "TJSQ"), ("FNV Hash", "TLWL-2")),
    ),
    Claim("003 §I: throughput scales to 10 nodes", "reproduced", "", scaling, unscaled, CONSTRUCTED),
    Claim(
        "003 §VI.d, figure 6: two nodes, one half loaded: the ideal is 450 calls/s",
        "reproduced",
        "",
        unequal,
        all_like("RR"),
    ),
    Claim(
        "002 §1: two servers that share load collapse together; a limit in front keeps them up",
        "reproduced",
        "",
        cascade,
        way_of("limited", "alone"),
    ),
    Claim(
        "002 §1: calls that are offered to the other server after a 503 overload that as well",
        "reproduced",
        "",
        carried_over,
        way_of("failover", "alone"),
    ),
    Claim(
        "ours: a Tidegate carries no overload over: who has refused within a second is passed over",
        "reproduced",
        "",
        passed_over,
        halved("front"),
    ),
]


def tables(farm: Farm) -> None:
    print("\npeak throughput, calls/s handled by the 99.99 % rule; paper: ideal 2,400 and 450")
    for label in PAPER:
        print(f"  {label:<12}{farm.peak('peak', label):>8.0f}{farm.peak('unequal', label):>8.0f}")
    for label in MORE:
        print(f"  {label:<12}{'-':>8}{farm.peak('unequal', label):>8.0f}")
    for pause_ms in (0, 500):
        pause = f"servers pause {pause_ms} ms every 10 s" if pause_ms else "servers never pause"
        for key, what in (("invite_ms", "INVITE, mean"), ("invite_p99_ms", "INVITE, p99"), ("bye_ms", "BYE, mean")):
            print(f"\nresponse time, {what}, ms; {pause}; median of the runs")
            loads = sorted({row["load"] for row in farm.of("response", "RR")})
            print(f"  {'load':<12}" + "".join(f"{load:>9g}" for load in loads))
            for label in (*PAPER, *MORE):
                cells = (farm.median("response", label, key, load=load, pause_ms=pause_ms) for load in loads)
                print(f"  {label:<12}" + "".join(f"{cell:>9.2f}" for cell in cells))
    print("\noccupancy that 50, 99 and 99.9 % of the requests did not exceed, load 0.9, no pauses")
    for label in (*PAPER, *MORE):
        cells = (farm.tail(label, part, load=0.9, pause_ms=0) for part in (0.5, 0.99, 0.999))
        print(f"  {label:<12}" + "".join(f"{cell:>6}" for cell in cells))
    print("\npeak throughput by the number of servers")
    for label in ("TLWL-1.75", "CJSQ", "RR"):
        nodes = sorted({row["nodes"] for row in farm.of("scaling", label)})
        cells = (farm.peak("scaling", label, nodes=n) for n in nodes)
        print(f"  {label:<12}" + "".join(f"{n:>4}: {cell:<6.0f}" for n, cell in zip(nodes, cells, strict=True)))
    print("\nINVITE, mean, ms, by what it truly costs as a multiple of a BYE; load 0.95")
    labels = sorted({row["label"] for row in farm.rows if row["scenario"] == "ratio"})
    for label in labels:
        cells = (farm.median("ratio", label, "invite_ms", load=0.95, invite_to_bye=ratio) for ratio in (1, 1.75, 3))
        print(f"  {label:<14}" + "".join(f"{cell:>9.2f}" for cell in cells))
    print("\ngoodput ÷ capacity of two servers that refuse")
    loads = sorted({row["load"] for row in farm.of("cascade-alone", "pi")})
    print(f"  {'load':<30}" + "".join(f"{load:>7g}" for load in loads))
    for way, what in WAYS.items():
        print(f"  {what:<30}" + "".join(f"{goodput(farm, way, load):>7.2f}" for load in loads))
    print("\nINVITE, mean, ms, by how long calls are held, 5 s on the mean; load 0.9")
    ways = ("fixed", "exp", "lognormal")
    print(f"  {'':<12}" + "".join(f"{how:>11}" for how in ways))
    for label in ("TLWL-1.75", "TJSQ", "CJSQ", "RR"):
        cells = (farm.median(f"hold-{how}", label, "invite_ms", load=0.9) for how in ways)
        print(f"  {label:<12}" + "".join(f"{cell:>11.2f}" for cell in cells))


def wire(record: Record, farm: Farm) -> None:
    """Both worlds beside each other, and how far they are apart."""
    print("\nINVITE, mean, ms, 8 servers of 75 calls/s: simulated / real sockets")
    apart = []
    places = sorted({(row["pause_ms"], row["load"]) for row in farm.of("wire-sim", "RR")})
    print("  pause, load " + "".join(f"{pause_ms:>9.0f}, {load:<5}" for pause_ms, load in places))
    for label in ("TLWL-1.75", "CJSQ", "RR"):
        cells = []
        for pause_ms, load in places:
            sim, real = (
                farm.median(f"wire-{world}", label, "invite_ms", load=load, pause_ms=pause_ms)
                for world in ("sim", "real")
            )
            apart.append(log(real / sim))
            cells.append(f"{sim:8.1f} /{real:7.1f}")
        print(f"  {label:<12}" + "".join(cells))

    def factor(of: Callable[[list[float]], float], slower: float = 1) -> float:
        return exp(of([abs(ratio + log(slower)) for ratio in apart]))

    middle, most = factor(statistics.median), factor(max)
    slow = sum(row["too_slow"] for row in farm.rows if row["scenario"] == "wire-real")
    print(f"        the generator was too slow in {slow} runs")
    record.expect(
        middle <= 1.25,
        f"simulated and real means are apart by a factor of {middle:.2f} on the median, {most:.2f} at the most",
    )
    planted = factor(statistics.median, slower=2)
    record.expect(planted > 1.25, f"other by real means of twice the length: {planted:.2f}")


class Show(Demonstration):
    PROFILE = "release"
    ROUNDS = 5

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--quick", action="store_true", help="one run of a second of each point")
        parser.add_argument("--no-wire", action="store_true", help="simulate only")

    def run(self) -> Results:
        less = {"repetitions": str(len(self.rounds))}
        if self.options.quick:
            less = {"repetitions": "1", "warm_up_s": "1", "measured_s": "1"}

        def run(name: str, world: str = "sim", **changed: str) -> Run:
            print(f"        {name}, {world} {changed or ''}", flush=True)
            return Run(self, name, world, REAL_JOBS if world == "real" else None, self.profile, **less, **changed)

        rows: list[Row] = []
        for name in ("peak", "response", "scaling", "unequal", "ratio"):
            rows += rows_of(name, run(f"paper-003-{name}"))
        varied = run("paper-003-response", costs='"hyperexponential"', pause_ms="[0]")
        rows += rows_of("response", varied, "varied")
        for how in ("fixed", "exp", "lognormal:1.5"):
            held = run("paper-003-hold", hold=f'"{how}"')
            rows += rows_of("hold", held, f"hold-{how.partition(':')[0]}")
        for way, name, changed in (
            ("alone", "cascade", {"failover": "false"}),
            ("failover", "cascade", {}),
            ("handed", "front", {"mode": '"stateless"'}),
            ("front", "front", {}),
            ("limited", "front", {"rate_cps": "175"}),
        ):
            rows += rows_of(name, run(f"paper-002-{name}", **changed), f"cascade-{way}")
        farm = Farm(rows)
        tables(farm)
        if not self.options.no_wire:
            for world in ("sim", "real"):
                farm.rows += rows_of("wire", run("paper-003-wire", world), f"wire-{world}")
            wire(self, farm)

        claims = []
        print()
        for claim in CLAIMS:
            seen = claim.judge(farm)
            because = f" ({claim.why})" if claim.why and seen.verdict != "reproduced" else ""
            label = f" ({claim.label})" if claim.label else ""
            self.expect(
                seen.verdict == claim.expected, f"{seen.verdict}{label}: {claim.claim}: {seen.numbers}{because}"
            )
            claims.append({"claim": claim.claim, "label": claim.label, **seen._asdict()})
            broken = claim.judge(Farm(claim.planted(farm.rows)))
            self.expect(broken.verdict != seen.verdict, f"other by planted numbers: {broken.verdict}: {broken.numbers}")
        self.rows("claims", claims)
        keys = dict.fromkeys(key for row in farm.rows for key in row)
        self.rows(
            "runs",
            [
                {key: json.dumps(row[key]) if isinstance(row.get(key), list) else row.get(key, "") for key in keys}
                for row in farm.rows
            ],
        )
        return {"verdicts": claims}
