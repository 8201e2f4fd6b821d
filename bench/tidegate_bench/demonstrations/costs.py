"""The cost of a message, admitted and dropped, and of a law's measurements, compared with paper 000

Runs `tidegate lab costs` and `tidegate lab overhead` three times each. Every claim of the paper about costs (§6.1,
§6.2), its model (§5), its clock (§4.1.1) and its droppers (§3.4) is compared with the values measured here. Each claim
has a verdict in `scenarios/claims/000.toml`: reproduced, partly reproduced or not reproduced. The verdicts must hold.
The paper's microseconds need not, because they were measured on a Pentium 4. Each condition is also given wrong
numbers, and must fail with them. For example, the deterministic dropper gets the numbers of the random one.
"""

import copy
import json
import statistics
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tidegate_bench import program
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import ROOT, Spread
from tidegate_bench.tidegate import built

VERDICTS = {"reproduced": "reproduced", "partly": "partly reproduced", "not": "not reproduced"}
CALL = ["invite", "ringing", "answer", "ack", "bye", "bye_answer"]

Run = dict[str, Any]
# A function that replaces values of a run by wrong ones.
Planted = Callable[[Run], None]


class Seen(NamedTuple):
    """The result of a condition: whether it held, and the numbers that decided it."""

    held: bool
    numbers: str


class Claim(NamedTuple):
    """A condition on a claim of the paper, and wrong numbers with which the condition must fail."""

    # The id of the claim in scenarios/claims/000.toml, which has the claim and its verdict.
    name: str
    judge: Callable[[Sequence[Run]], Seen]
    planted: Planted


def command(name: str, folder: Path, *more: str) -> Run:
    printed = program.output(built("tidegate", "release"), "lab", name, "--out", folder, *more)
    (folder / f"{name}.txt").write_text(printed)
    print(printed, flush=True)
    result: Run = json.loads((folder / f"{name}.json").read_text())
    return result


# Values of a run that the conditions use.


def cost(run: Run, kind: str, control: str, fate: str, way: str = "cycle") -> float:
    """Returns the cost of a message to a good destination: the smallest of all rounds, as in the paper's tables."""
    wanted = {"kind": kind, "good": True, "control": control, "fate": fate}
    rows = [row for row in run["costs"]["rows"] if wanted.items() <= row.items()]
    return float(rows[0][way]["min_us"])


def over_kinds(run: Run, value: Callable[[str], float]) -> float:
    return statistics.median(value(kind) for kind in CALL)


def more(run: Run, measure: int, reading: str) -> float:
    """Returns the cost that a measurement adds to a message, as a part of its other cost: the median over all laws."""
    rows = [
        row["more_ns"]["median"] / row["none_ns"]["median"]
        for row in run["overhead"]["packets"]
        if row["measure"] == measure and row["reading"] == reading
    ]
    return statistics.median(rows)


def readings(run: Run, clock: str, k: int, measure: int) -> dict[str, Any]:
    wanted = {"clock": clock, "k": k, "measure": measure}
    rows = [r for r in run["overhead"]["readings"]["rows"] if wanted.items() <= r.items()]
    row: dict[str, Any] = rows[0]
    return row


def droppers(run: Run, name: str) -> list[dict[str, Any]]:
    return [row for row in run["overhead"]["droppers"] if row["dropper"] == name]


def median(runs: Sequence[Run], value: Callable[[Run], float]) -> float:
    return statistics.median(value(run) for run in runs)


# The conditions.


def dropping(runs: Sequence[Run]) -> Seen:
    def of(kind: str, control: str) -> float:
        return median(runs, lambda run: cost(run, kind, control, "dropped"))

    idle = [of(kind, "idle") for kind in CALL]
    measured = [of(kind, "measuring") for kind in CALL]
    parts = [
        drop / median(runs, partial(cost, kind=kind, control="none", fate="accepted"))
        for kind, drop in zip(CALL, idle, strict=True)
    ]
    return Seen(
        max(parts) < 0.4 and all(a < b for a, b in zip(idle, measured, strict=True)),
        f"{min(idle):.2f} to {max(idle):.2f} µs, {min(parts):.0%} to {max(parts):.0%} of an "
        f"accepted message; with a measurement {min(measured):.2f} to {max(measured):.2f}",
    )


def alike(runs: Sequence[Run]) -> Seen:
    idle = [median(runs, partial(cost, kind=kind, control="idle", fate="dropped")) for kind in CALL]
    ratio = max(idle) / min(idle)
    return Seen(ratio > 1.15, f"the most expensive kind costs {ratio:.2f} times the cheapest")


def control(runs: Sequence[Run]) -> Seen:
    def extra(run: Run) -> float:
        return over_kinds(
            run,
            lambda kind: (
                cost(run, kind, "idle", "accepted", "processing") - cost(run, kind, "none", "accepted", "processing")
            ),
        )

    value = median(runs, extra)
    return Seen(-0.1 < value < 0.1, f"{value:.2f} µs")


def measuring(run: Run, fate: str) -> float:
    return over_kinds(run, lambda kind: cost(run, kind, "measuring", fate) - cost(run, kind, "idle", fate))


def measured(runs: Sequence[Run]) -> Seen:
    accepted = median(runs, lambda run: measuring(run, "accepted"))
    dropped = median(runs, lambda run: measuring(run, "dropped"))
    ratio = dropped / accepted
    return Seen(
        accepted > 0.5 and 0.7 < ratio < 1.4, f"{accepted:.2f} µs for an accepted message, {dropped:.2f} for a drop"
    )


def kernel(runs: Sequence[Run]) -> Seen:
    def outside(run: Run) -> float:
        return over_kinds(
            run, lambda kind: cost(run, kind, "idle", "dropped") - cost(run, kind, "idle", "dropped", "processing")
        )

    value = median(runs, outside)
    whole = median(runs, lambda run: over_kinds(run, lambda kind: cost(run, kind, "idle", "dropped")))
    part = value / whole
    return Seen(part > 0.5, f"{value:.2f} µs of {whole:.2f} are outside the core, {part:.0%}")


def kernel_drop(runs: Sequence[Run]) -> Seen:
    def gate(way: str) -> float:
        halves = ("sender", "reader")
        return median(runs, lambda run: sum(run["costs"]["gate"][way][half]["median_us"] for half in halves))

    read, shed = gate("read"), gate("shed")
    return Seen(
        shed < read,
        f"from the sender to the drop {read:.2f} µs if Tidegate reads the message, {shed:.2f} if the kernel drops it",
    )


def at_measurement(runs: Sequence[Run]) -> Seen:
    at = {
        every: median(runs, partial(more, measure=every, reading="at_measurement")) for every in (1, 10, 125, 250, 1000)
    }
    held = at[1] > 0.3 and at[1] > at[10] > at[1000] - 0.02
    held = held and all(abs(at[every] - at[1000]) < 0.06 for every in (125, 250))
    return Seen(held, ", ".join(f"every {every}: {part:+.1%}" for every, part in at.items()))


def by_driver(runs: Sequence[Run]) -> Seen:
    each, seldom = (median(runs, partial(more, measure=e, reading="by_driver")) for e in (1, 1000))
    return Seen(abs(each - seldom) < 0.1, f"every message {each:+.1%}, every thousandth {seldom:+.1%}")


def fraction(t_a: float, t_d: float) -> float:
    """Returns the admitted share that leaves 90 % of the throughput, if the costs of a message are t_a and t_d."""
    return 0.9 * t_d / (0.1 * t_a + 0.9 * t_d)


def example(runs: Sequence[Run]) -> Seen:
    paper = runs[0]["costs"]["paper"]
    held = abs(paper["fraction"] - fraction(70, 6)) < 1e-9
    held = held and abs(paper["processed_per_s"] - 29_524) < 1
    return Seen(
        held and paper["accepted_us"] == 70,
        f"f {paper['fraction']:.4f}, PP_r {paper['processed_per_s']:,.0f}, delay / {paper['delay_ratio']:.2f}",
    )


def here(runs: Sequence[Run]) -> Seen:
    shares: list[float] = []
    texts: list[str] = []
    for way in ("cycle", "core"):
        models = [run["costs"][way]["dropping"] for run in runs]
        for model in models:
            t_a, t_d = model["accepted_us"], model["dropped_us"]
            if abs(model["fraction"] - fraction(t_a, t_d)) > 1e-9:
                return Seen(False, f"f is not that of t_a {t_a} and t_d {t_d}")
        # The median of f can be from another run than those of t_a and t_d. So f is calculated from the two medians.
        t_a, t_d = (statistics.median(model[key] for model in models) for key in ("accepted_us", "dropped_us"))
        f = fraction(t_a, t_d)
        # 000 §5.2.1: the delay is divided by PP_r at f, divided by PP_r at 1.
        delay_ratio = t_a / (f * t_a + (1 - f) * t_d)
        shares.append(f)
        texts.append(f"t_a {t_a:.2f} and t_d {t_d:.2f} µs: f {f:.2f}, delay / {delay_ratio:.2f}")
    return Seen(all(0.435 < f < 0.8 for f in shares), f"{texts[0]}; core alone {texts[1]}")


def jiffies(runs: Sequence[Run]) -> Seen:
    coarse = [readings(run, "10 ms", 2, 1) for run in runs]
    zero = min(row["zero"] for row in coarse)
    greatest = max(row["max"] for row in coarse)
    return Seen(zero > 0.9 and greatest > 30, f"{zero:.1%} of the readings are 0, the greatest is {greatest:.0%}")


def fine(runs: Sequence[Run]) -> Seen:
    exact = [readings(run, "1 ns", 2, 1) for run in runs]
    zero, above = (max(row[key] for row in exact) for key in ("zero", "above_one"))
    return Seen(zero < 0.01 and above < 0.05, f"{zero:.1%} of the readings are 0, {above:.1%} are above 100 %")


def window(runs: Sequence[Run]) -> Seen:
    grains = [max(readings(run, "10 ms", 25, 125)["of_grain"] for run in runs)]
    grains += [min(readings(run, "10 ms", 2, 1)["of_grain"] for run in runs)]
    return Seen(
        grains[0] < 0.02 and grains[1] > 1,
        f"the error by the clock's resolution is {grains[0]:.3f}, and {grains[1]:.1f} with k = 2 and measure = 1",
    )


def even(runs: Sequence[Run]) -> Seen:
    rows = [row for run in runs for row in droppers(run, "deterministic")]

    def off(row: dict[str, Any], key: str) -> float:
        return abs(float(row[key]["measured"]) - float(row[key]["exact"]))

    deviation = max(off(row, "deviation") for row in rows)
    longest = max(off(row, "run_longest") for row in rows)
    return Seen(
        deviation < 0.02 and longest == 0,
        f"differs from the formula by at most {deviation:.3f} in 100, and in the longest run by {longest:.0f}",
    )


def clusters(runs: Sequence[Run]) -> Seen:
    rows = [row for run in runs for row in droppers(run, "random") if row["fraction"] <= 0.5]
    ratios = [row["deviation"]["measured"] / row["deviation"]["exact"] for row in rows]
    runs_ = [row["run_longest"]["measured"] / (1 / row["fraction"] - 1) for row in rows]
    return Seen(
        all(0.95 < ratio < 1.05 for ratio in ratios) and min(runs_) > 5,
        f"{min(ratios):.3f} to {max(ratios):.3f} of √(n·f·(1−f)), and runs at least "
        f"{min(runs_):.0f} times the deterministic ones",
    )


# Wrong numbers with which the conditions must fail.


def costing(change: Callable[[dict[str, Any]], float]) -> Planted:
    """Multiplies the costs of each row by a factor."""

    def planted(run: Run) -> None:
        for row, way in product(run["costs"]["rows"], ("cycle", "processing")):
            row[way]["min_us"] *= change(row)

    return planted


def dear_core(run: Run) -> None:
    for row in run["costs"]["rows"]:
        row["processing"]["min_us"] *= 6


def swapped_gate(run: Run) -> None:
    gate = run["costs"]["gate"]
    gate["read"], gate["shed"] = gate["shed"], gate["read"]


def even_drops(run: Run) -> None:
    for row in run["costs"]["rows"]:
        if row["fate"] == "dropped":
            row["cycle"]["min_us"] = 2.75


def swapped(part: str, key: str, first: Any, second: Any) -> Planted:
    """Exchanges the rows of two names."""

    def planted(run: Run) -> None:
        rows = run["overhead"][part]
        for row in rows["rows"] if isinstance(rows, dict) else rows:
            row[key] = {first: second, second: first}.get(row[key], row[key])

    return planted


def picking(impostor: str, victim: str) -> Planted:
    """Gives one dropper the numbers of the other."""

    def planted(run: Run) -> None:
        pairs = zip(droppers(run, victim), droppers(run, impostor), strict=True)
        for (mine, other), key in product(pairs, ("deviation", "run_mean", "run_longest")):
            mine[key]["measured"] = other[key]["measured"]

    return planted


def wrong_model(of: str) -> Planted:
    def planted(run: Run) -> None:
        model = run["costs"][of]
        (model if of == "paper" else model["dropping"])["fraction"] += 0.01

    return planted


CLAIMS = [
    Claim("000-drop", dropping, costing(lambda row: 4 if row["fate"] == "dropped" else 1)),
    Claim("000-drop-kinds", alike, even_drops),
    Claim("000-control", control, costing(lambda row: 1.5 if row["control"] == "idle" else 1)),
    Claim(
        "000-measurement",
        measured,
        costing(lambda row: 2.5 if row["fate"] == "dropped" and row["control"] == "measuring" else 1),
    ),
    # Calculated as in the paper (whole cycle minus core), most of the cost of a drop is outside the core.
    Claim("000-kernel-drop", kernel, dear_core),
    # Tidegate's filter in the kernel drops a message for less CPU time than Tidegate itself.
    Claim("000-kernel-drop", kernel_drop, swapped_gate),
    # A law that reads the processor time at each measurement (core alone).
    Claim("000-measuring-often", at_measurement, swapped("packets", "reading", "at_measurement", "by_driver")),
    # The driver reads the processor time every 2 ms, so more measurements cost nothing.
    Claim("000-measuring-often", by_driver, swapped("packets", "reading", "at_measurement", "by_driver")),
    # f is right, but the other numbers of the paper do not follow from it.
    Claim("000-model", example, wrong_model("paper")),
    # Accepting a message has become cheaper by more than dropping one, so more must be admitted.
    Claim("000-model", here, wrong_model("cycle")),
    Claim("000-jiffies", jiffies, swapped("readings", "clock", "10 ms", "1 ns")),
    Claim("000-jiffies", fine, swapped("readings", "clock", "10 ms", "1 ns")),
    Claim("000-window", window, swapped("readings", "measure", 1, 125)),
    Claim("000-droppers", even, picking("random", "deterministic")),
    Claim("000-droppers", clusters, picking("deterministic", "random")),
]


def recorded() -> dict[str, dict[str, Any]]:
    """Returns the claims that this command judges, by their ids, as the page of results shows them."""
    tables = tomllib.loads((ROOT / "scenarios" / "claims" / "000.toml").read_text())
    return {row["id"]: row for row in tables["measured"] if "id" in row}


class Show(Demonstration):
    def run(self) -> Results:
        runs: list[Run] = []
        for number in self.rounds:
            folder = self.directory / f"run-{number}"
            folder.mkdir()
            print(f"\nrun {number} of {len(self.rounds)}", flush=True)
            overhead = command("overhead", folder, "--seed", str(number))
            runs.append({"costs": command("costs", folder), "overhead": overhead})

        print(f"{len(runs)} runs                                    minimum     median    maximum")
        quantities: dict[str, Callable[[Run], float]] = {
            "s, a call, whole cycle (µs)": lambda run: run["costs"]["cycle"]["call_us"],
            "r, a call rejected by 503 (µs)": lambda run: run["costs"]["cycle"]["rejection_us"],
            "an INVITE dropped (µs)": lambda run: run["costs"]["cycle"]["drop_us"],
            "s, core alone (µs)": lambda run: run["costs"]["core"]["call_us"],
            "f for 90 %, whole cycle": lambda run: run["costs"]["cycle"]["dropping"]["fraction"],
            "measuring each dropped message (µs)": lambda run: measuring(run, "dropped"),
            "measuring each message (share of cost)": lambda run: more(run, 1, "at_measurement"),
            "measuring every 125th (share of cost)": lambda run: more(run, 125, "at_measurement"),
            "measuring every 1000th (share of cost)": lambda run: more(run, 1000, "at_measurement"),
            "occupancy of the thread": lambda run: run["overhead"]["readings"]["occupancy"],
        }
        for name, value in quantities.items():
            print(f"{name:<38}{Spread.of([value(run) for run in runs]).text(3)}")
        self.rows(
            "results",
            [{"quantity": n, **{f"run_{i + 1}": v(r) for i, r in enumerate(runs)}} for n, v in quantities.items()],
        )

        claims = recorded()
        verdicts = []
        for name, judge, planted in CLAIMS:
            claim = claims[name]
            print(f"\n000, {claim['place']}: {claim['says']} ({VERDICTS[claim['verdict']]})")
            seen = judge(runs)
            self.expect(seen.held, seen.numbers)
            altered = copy.deepcopy(runs)
            for run in altered:
                planted(run)
            broken = judge(altered)
            self.expect(not broken.held, f"the check fails with planted numbers: {broken.numbers}")
            verdicts.append({"claim": name, "verdict": claim["verdict"], **seen._asdict()})
        return {"verdicts": verdicts}
