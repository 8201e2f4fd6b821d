"""Paper 001's comparison of PI, OCC and Ohta: its numbers, and what is said of each claim."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from tidegate_bench.verdicts import Claim, Seen, graded

LOADS = (0.53, 0.79, 1.05, 1.31, 1.57, 1.83, 2.09, 2.35, 2.61)
NEAR_2 = 2.09


class Cell(NamedTuple):
    """What all runs of one law under one load had."""

    goodput: tuple[float, ...]
    """As a part of the capacity."""
    repeated: tuple[float, ...]
    """INVITEs retransmitted per call."""
    delay_ms: tuple[float, ...]
    """The mean time to establish a call."""


class Traces(NamedTuple):
    """What the figures of the dynamic behaviour show, of each run."""

    occ_full_s: tuple[float, ...]
    """For how long the processor is full under OCC, target 90 %, at r = 1.57."""
    ohta_swing: tuple[float, ...]
    """By how many messages Ohta's queue swings, without the first 20 s, at r = 1.05."""
    pi_occupancy: tuple[float, ...]
    """C under PI, target 80 %, on the mean, at r = 1.57."""


class Shapes(NamedTuple):
    """All of the comparison."""

    cells: Mapping[tuple[str, float], Cell]
    """By label and load; OCC with the buffer of a socket."""
    buffers: Mapping[tuple[int, str, float], Cell]
    """OCC by the messages that its buffer holds, label and load."""
    traces: Traces

    def goodput(self, label: str, load: float) -> float:
        return statistics.median(self.cells[label, load].goodput)


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the range of all runs: of five it holds the true median with 94 %."""
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def pi_at_2(shapes: Shapes) -> Seen:
    kept = shapes.goodput("pi 90 %", NEAR_2)
    numbers = ", ".join(f"{spread(shapes.cells[f'pi {n} %', NEAR_2].goodput)} ({n} %)" for n in (90, 80))
    return Seen(graded(0.35 <= kept <= 0.55, kept >= 0.2), f"{numbers} at {NEAR_2}")


def pi_range(shapes: Shapes) -> Seen:
    end = next((load for load in LOADS if load > 1 and shapes.goodput("pi 90 %", load) < 0.2), inf)
    return Seen(graded(end > 2.3, end > 1.8), f"{spread(shapes.cells['pi 90 %', 2.61].goodput)} at 2.61")


def occ_range(shapes: Shapes) -> Seen:
    """The paper's measure is goodput: where OCC's is below nine tenths of PI's with the same target."""

    def end(target: int, cells: Callable[[str, float], Cell]) -> float:
        label = f"occ {target} %"
        return next(
            (
                load
                for load in LOADS
                if load > 1
                and statistics.median(cells(label, load).goodput) < 0.9 * shapes.goodput(f"pi {target} %", load)
            ),
            inf,
        )

    ends = {target: end(target, lambda label, load: shapes.cells[label, load]) for target in (90, 80)}
    beside = ", ".join(
        f"occ {spread(shapes.cells[f'occ {n} %', load].goodput)}, pi {shapes.goodput(f'pi {n} %', load):.2f} at {load}"
        f" ({n} %)"
        for n, load in ((90, 1.57), (80, 1.83), (90, 2.61))
    )
    sweep = "; ".join(
        f"buffer of {size}: below from "
        + " and ".join(str(end(n, lambda label, load, s=size: shapes.buffers[s, label, load])) for n in (90, 80))  # type: ignore[misc]
        for size in sorted({size for size, _, _ in shapes.buffers})
    )
    late = ends[90] < ends[80]
    return Seen(graded(ends == {90: 1.57, 80: 1.83}, late), f"goodput {beside}; {sweep}")


def ohta_step(shapes: Shapes) -> Seen:
    drop = shapes.goodput("ohta", 0.79) - shapes.goodput("ohta", 1.31)
    numbers = ", ".join(f"{spread(shapes.cells['ohta', load].goodput)} at {load}" for load in (0.79, 1.05, 1.31))
    return Seen(graded(drop >= 0.4, drop >= 0.15), numbers)


def pi_repeats(shapes: Shapes) -> Seen:
    most = max(max(shapes.cells[f"pi {n} %", NEAR_2].repeated) for n in (80, 90))
    return Seen(graded(most < 0.1, most < 0.3), f"at most {most:.2f} at {NEAR_2}")


def pi_responds(shapes: Shapes) -> Seen:
    delays = [statistics.median(shapes.cells["pi 80 %", load].delay_ms) for load in LOADS]
    whole = all(25 <= delay <= 100 for delay in delays)
    return Seen(
        graded(whole, all(25 <= delay <= 100 for delay in delays[2:7])), f"{min(delays):.0f} to {max(delays):.0f} ms"
    )


def occ_slow(shapes: Shapes) -> Seen:
    full = statistics.median(shapes.traces.occ_full_s)
    return Seen(graded(20 <= full <= 30, full >= 5), f"{spread(shapes.traces.occ_full_s, 0)} s")


def ohta_swings(shapes: Shapes) -> Seen:
    """Between the watermarks are 400 messages."""
    swing = statistics.median(shapes.traces.ohta_swing)
    return Seen(graded(swing >= 400, swing >= 100), f"by {spread(shapes.traces.ohta_swing, 0)} messages at 1.05")


def pi_tracks(shapes: Shapes) -> Seen:
    held = statistics.median(shapes.traces.pi_occupancy)
    numbers = f"{spread(shapes.traces.pi_occupancy)} on the mean, the target .80"
    return Seen(graded(abs(held - 0.8) <= 0.05, abs(held - 0.8) <= 0.1), numbers)


def times(label: str, loads: Sequence[float] = LOADS, **factors: float) -> Callable[[Shapes], Shapes]:
    """The same runs, in which this law had so many times a quantity, and of repeated INVITEs so many more."""

    def change(shapes: Shapes) -> Shapes:
        def planted(cell: Cell) -> Cell:
            return Cell(
                tuple(v * factors.get("goodput", 1) for v in cell.goodput),
                tuple(v + factors.get("repeated", 0) for v in cell.repeated),
                tuple(v * factors.get("delay_ms", 1) for v in cell.delay_ms),
            )

        cells = {
            key: planted(cell) if key[0] == label and key[1] in loads else cell for key, cell in shapes.cells.items()
        }
        return shapes._replace(cells=cells)

    return change


def trace(**values: float) -> Callable[[Shapes], Shapes]:
    """The same runs with another trace."""
    return lambda shapes: shapes._replace(traces=shapes.traces._replace(**{k: (v,) * 5 for k, v in values.items()}))


def like_paper(_: Shapes) -> Shapes:
    """The numbers of the paper in place of all runs."""
    return PAPER


def _paper() -> Shapes:
    """Numbers that agree with every claim: the values of the text, and of its figures the shapes."""
    pi = dict(zip(LOADS, (0.53, 0.79, 0.85, 0.75, 0.65, 0.55, 0.4, 0.3, 0.22), strict=True))
    ends = {"occ 90 %": 1.3, "occ 80 %": 1.7}

    def cell(goodput: float, repeated: float = 0.0, delay_ms: float = 50.0) -> Cell:
        return Cell((goodput,) * 5, (repeated,) * 5, (delay_ms,) * 5)

    cells = {(f"pi {n} %", load): cell(kept) for n in (80, 90) for load, kept in pi.items()}
    for label, end in ends.items():
        cells |= {
            (label, load): cell(kept if load <= end + 0.02 else 0.1, 0.0 if load <= end else 2.0, 1000.0)
            for load, kept in pi.items()
        }
    cells |= {("ohta", load): cell(load if load < 1 else 0.1, 2.0, 2000.0) for load in LOADS}
    return Shapes(cells, {}, Traces((25.0,) * 5, (800.0,) * 5, (0.8,) * 5))


PAPER = _paper()

CLAIMS: list[Claim[Shapes]] = [
    Claim(
        "001 §4.3, figure 4: PI keeps a goodput of .4 at r = 2, if a rejection costs .28 of a call",
        "reproduced",
        pi_at_2,
        times("pi 90 %", goodput=0.5),
        "fitted",
    ),
    Claim("001 §5: PI handles r up to 2.3", "reproduced", pi_range, times("pi 90 %", goodput=0.3), "fitted"),
    Claim(
        "001 §4.3, figure 4: OCC's goodput degrades above 1.3 (target 90 %), holds to 1.7 (80 %)",
        "not",
        occ_range,
        like_paper,
    ),
    Claim(
        "001 §4.3, figure 4: Ohta falls like a step above 1", "reproduced", ohta_step, times("ohta", (1.31,), goodput=4)
    ),
    Claim(
        "001 §4.3, figure 5 (a): PI: fewer than .1 retransmissions a call at r = 2",
        "reproduced",
        pi_repeats,
        times("pi 80 %", repeated=0.2),
    ),
    Claim(
        "001 §4.3, figure 5 (b): PI: response time 50 ms at every r",
        "reproduced",
        pi_responds,
        times("pi 80 %", delay_ms=3),
    ),
    Claim("001 §4.3, figure 7 (a): PI: C tracks its target at r = 1.57", "partly", pi_tracks, trace(pi_occupancy=0.5)),
    Claim(
        "001 §4.3, figure 6 (b): OCC is slow: the processor is full for 25 s at r = 1.57",
        "partly",
        occ_slow,
        trace(occ_full_s=0),
    ),
    Claim(
        "001 §4.3, figure 6 (a): Ohta's queue oscillates at r = 1.1", "reproduced", ohta_swings, trace(ohta_swing=50)
    ),
]
