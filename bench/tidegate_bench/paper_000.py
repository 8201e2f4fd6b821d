"""Paper 000's experiments with one server: their numbers, and what is said of each claim."""

import statistics
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, NamedTuple

from tidegate_bench.verdicts import Claim, Seen, graded

LAWS = ("basic", "occupancy", "sired", "aro")

# §6.4: the rate over time as a factor on the highest, and for how long statistics are kept; of the gradual
# experiment 120 s.
PROFILES = {"constant": ("steps:0=0.6", 60), "gradual": ("gradual:50,30,50", 120), "instant": ("instant:10", 30)}

# The constant experiment offers six tenths of the highest rate, 3,000 of 5,000 calls/s by each sender.
CONSTANT = 0.6
# §6.7.1: "SIPp limits the number of open calls to three times the call rate", 18,000 for 6,000 calls/s.
OPEN_S = 3
# Six packets of 280 µs, scenarios/paper-000-*.toml.
CAPACITY_CPS = 1e6 / (6 * 280)
UNLIMITED = 1_000_000


class Setting(NamedTuple):
    """How much is offered, and what ends it."""

    load: float
    """The highest rate as a multiple of the capacity."""
    limited: bool
    """Whether SIPp's limit of open calls holds."""
    what: str

    @property
    def constant(self) -> float:
        """The rate of the constant experiment as a multiple of the capacity."""
        return round(CONSTANT * self.load, 2)

    def open_max(self, capacity_cps: float) -> int:
        return round(OPEN_S * self.constant * capacity_cps) if self.limited else UNLIMITED


# The paper does not give the capacity of its server. §6.6.1 bounds it: without the server some 1,000 of the 6,000
# calls/s more were set up, which is 1.2 times the capacity; and §6.7.1: without retransmissions each call that the
# server loses remains open, and basic did not fill 18,000 open calls in 60 s, which is 1.05 times. §5 has an example
# of packets that take 70 µs, which is 2.5 times.
SETTINGS = {
    "bounded": Setting(2.0, False, "1.2 times the capacity"),
    "example": Setting(4.2, False, "2.5 times"),
    "limit": Setting(2.0, True, "1.2 times, open calls limited"),
}


class Place(NamedTuple):
    """One experiment of the paper."""

    scheme: str
    retransmissions: bool
    profile: str


# The experiments of which the paper has a claim below.
CLAIMED = (
    Place("single", True, "constant"),
    Place("single", False, "constant"),
    Place("simplified", True, "gradual"),
    Place("simplified", True, "instant"),
    Place("simplified", False, "constant"),
    Place("simplified", False, "instant"),
)


def settings_of(place: Place) -> tuple[str, ...]:
    """The settings in which an experiment is run: that of the verdict, and those that may change it."""
    if place == CLAIMED[1]:
        return ("bounded", "limit")
    return ("bounded", "example") if place.scheme == "simplified" else ("bounded",)


class Cell(NamedTuple):
    """What all runs of one law in one experiment had."""

    cps: tuple[float, ...]
    delay_ms: tuple[float, ...]


Calls = Mapping[tuple[str, Place, str], Cell]
"""By setting, experiment and law."""


def set_up_cps(outcome: dict[str, Any]) -> float:
    return float(outcome["set_up"] / outcome["measured_s"])


def delay_ms(outcome: dict[str, Any]) -> float:
    """The mean from the first INVITE to the 200."""
    delays = [callers["stats"]["set_up_delay"] for callers in outcome["callers"]]
    count = sum(delay["count"] for delay in delays)
    return float(sum(d["count"] * d["mean_us"] for d in delays) / count / 1e3) if count else inf


def middle(values: tuple[float, ...]) -> float:
    return statistics.median(values)


def spread(values: tuple[float, ...], digits: int = 0) -> str:
    """The median, and the range of all runs: of five it holds the true median with 94 %."""
    return f"{middle(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def ratio(calls: Calls, setting: str, place: Place, law: str, of: str) -> tuple[float, ...]:
    """Each run beside that of basic with the same seed."""
    one, basic = (getattr(calls[setting, place, name], of) for name in (law, "basic"))
    return tuple(a / b if b else inf for a, b in zip(one, basic, strict=True))


def in_each_setting(place: Place, text: Callable[[str], str]) -> str:
    """The same numbers in each setting of the experiment."""
    return "; ".join(f"{SETTINGS[name].what}: {text(name)}" for name in settings_of(place))


def order_of_calls(calls: Calls) -> Seen:
    place = CLAIMED[0]
    rates = {law: middle(calls["bounded", place, law].cps) for law in LAWS}
    first = rates["basic"] > max(rates["occupancy"], rates["sired"])
    alike = abs(rates["occupancy"] - rates["sired"]) <= 0.15 * rates["occupancy"]
    last = rates["aro"] < 0.95 * min(rates["occupancy"], rates["sired"])
    numbers = ", ".join(f"{law} {spread(calls['bounded', place, law].cps)}" for law in LAWS)
    return Seen(graded(first and alike and last, first), numbers)


def order_of_delays(calls: Calls) -> Seen:
    cells = {law: calls["bounded", CLAIMED[0], law].delay_ms for law in LAWS}
    delays = {law: middle(cell) for law, cell in cells.items()}
    low = max(delays["basic"], delays["occupancy"]) < 250
    order = delays["aro"] > delays["sired"] > max(delays["basic"], delays["occupancy"])
    return Seen(graded(low and order, low or order), ", ".join(f"{law} {spread(cells[law])} ms" for law in LAWS))


def fall_to_nothing(calls: Calls) -> Seen:
    """The claim is the limit's: with it the rates fall, without it they do not."""
    place = CLAIMED[1]

    def part(setting: str, law: str) -> float:
        return middle(ratio(calls, setting, place, law, "cps"))

    parts = [part("limit", law) for law in ("aro", "occupancy")]
    numbers = in_each_setting(
        place, lambda name: f"ARO {part(name, 'aro'):.2f}, occupancy {part(name, 'occupancy'):.2f} of basic's"
    )
    return Seen(graded(max(parts) <= 0.1, max(parts) <= 0.5), numbers)


def sired_like_basic(calls: Calls) -> Seen:
    place = CLAIMED[1]
    rate, slow = (ratio(calls, "bounded", place, "sired", of) for of in ("cps", "delay_ms"))
    kept, lower = 0.9 <= middle(rate) <= 1.1, middle(slow) <= 0.9
    numbers = f"calls/s {spread(rate, 2)} of basic's, delay {spread(slow, 2)}"
    return Seen(graded(kept and lower, kept or lower), numbers)


def occupancy_above_basic(calls: Calls) -> Seen:
    def part(setting: str) -> tuple[float, ...]:
        return ratio(calls, setting, CLAIMED[3], "occupancy", "cps")

    at = part("bounded")
    numbers = "of basic's: " + in_each_setting(CLAIMED[3], lambda name: spread(part(name), 2))
    return Seen(graded(min(at) > 1, middle(at) >= 0.98), numbers)


def sired_below_basic(calls: Calls) -> Seen:
    def part(setting: str) -> tuple[float, ...]:
        return ratio(calls, setting, CLAIMED[2], "sired", "cps")

    at = part("bounded")
    numbers = "of basic's: " + in_each_setting(CLAIMED[2], lambda name: spread(part(name), 2))
    near = [name for name in settings_of(CLAIMED[2]) if 0.75 <= middle(part(name)) <= 0.9]
    return Seen(graded(0.75 <= middle(at) <= 0.9, bool(near)), numbers)


class Trade(NamedTuple):
    """Calls that a law gives up for a lower delay, both beside basic's."""

    cps: tuple[float, float]
    delay: float


def trade(place: Place, claimed: Mapping[str, Trade]) -> Callable[[Calls], Seen]:
    def judge(calls: Calls) -> Seen:
        def parts(setting: str, law: str) -> tuple[float, float]:
            return middle(ratio(calls, setting, place, law, "cps")), middle(
                ratio(calls, setting, place, law, "delay_ms")
            )

        held = []
        for law, claim in claimed.items():
            cps, delay = parts("bounded", law)
            held += [claim.cps[0] <= cps <= claim.cps[1], delay <= claim.delay]

        def each(setting: str) -> str:
            return ", ".join(
                f"{law} {cps - 1:+.0%}, {delay:.2f}" for law in claimed for cps, delay in [parts(setting, law)]
            )

        numbers = in_each_setting(place, each)
        return Seen(graded(all(held), 2 * sum(held) >= len(held)), f"calls/s, delay ÷ basic's: {numbers}")

    return judge


def planted(place: Place, law: str, cps: float = 1, delay: float = 1) -> Callable[[Calls], Calls]:
    """The same runs, in which this law had so many times its calls and its delay, in each setting."""

    def change(calls: Calls) -> Calls:
        return {
            key: Cell(tuple(v * cps for v in cell.cps), tuple(v * delay for v in cell.delay_ms))
            if key[1:] == (place, law)
            else cell
            for key, cell in calls.items()
        }

    return change


def like_paper(calls: Calls) -> Calls:
    """The numbers of the paper in place of all runs."""
    return PAPER


def _paper() -> Calls:
    """Numbers that agree with every claim: the values of the text, and of its figures the shapes."""
    of = {
        CLAIMED[0]: {"basic": (5000, 100), "occupancy": (4500, 100), "sired": (4500, 500), "aro": (3000, 1250)},
        CLAIMED[1]: {"basic": (5000, 200), "occupancy": (0, 10), "sired": (5000, 100), "aro": (0, 10)},
        CLAIMED[2]: {"basic": (5000, 200), "occupancy": (5000, 200), "sired": (4100, 300), "aro": (1000, 900)},
        CLAIMED[3]: {"basic": (3000, 200), "occupancy": (3500, 210), "sired": (3000, 210), "aro": (2900, 220)},
        CLAIMED[4]: {"basic": (5000, 200), "occupancy": (4250, 100), "sired": (3750, 40), "aro": (100, 5)},
        CLAIMED[5]: {"basic": (5000, 200), "occupancy": (4900, 18), "sired": (4900, 18), "aro": (100, 5)},
    }
    return {
        (setting, place, law): Cell((float(cps),) * 5, (float(delay),) * 5)
        for place, laws in of.items()
        for setting in settings_of(place)
        for law, (cps, delay) in laws.items()
    }


PAPER = _paper()

CLAIMS: list[Claim[Calls]] = [
    Claim(
        "000 §6.6.1, figure 7: calls/s, constant, single class: basic > occupancy ≈ SiRED > ARO",
        "partly",
        order_of_calls,
        planted(CLAIMED[0], "basic", cps=0.5),
    ),
    Claim(
        "000 §6.6.1, figure 8: delay low, low, 500, 1,250 ms (basic, occupancy, SiRED, ARO)",
        "not",
        order_of_delays,
        like_paper,
    ),
    Claim(
        "000 §6.7.1, figure 16: without retransmissions ARO and occupancy fall to 0, by the limit of open calls",
        "partly",
        fall_to_nothing,
        planted(CLAIMED[1], "basic", cps=0.2),
    ),
    Claim(
        "000 §6.7.1, figures 16 and 18: SiRED ≈ basic in calls/s at lower delay, without retransmissions",
        "reproduced",
        sired_like_basic,
        planted(CLAIMED[1], "sired", delay=3),
    ),
    Claim(
        "000 §6.8.3, figure 31: occupancy above basic under instant overload, INVITEs only",
        "not",
        occupancy_above_basic,
        planted(CLAIMED[3], "occupancy", cps=2),
    ),
    Claim(
        "000 §6.8.2, figure 28: SiRED 15-20 % below basic, gradual, INVITEs only",
        "partly",
        sired_below_basic,
        planted(CLAIMED[2], "sired", cps=2),
    ),
    Claim(
        "000 §6.9.1, figures 34 and 36: without retransmissions, constant: occupancy -15 %, SiRED -25 % calls/s; "
        "delay 1/2, 1/5",
        "partly",
        trade(CLAIMED[4], {"occupancy": Trade((0.8, 0.9), 0.6), "sired": Trade((0.7, 0.8), 0.3)}),
        like_paper,
    ),
    Claim(
        "000 §6.9.3, figures 40 and 42: without retransmissions, instant: delay below 1/10, calls/s alike",
        "not",
        trade(CLAIMED[5], {"occupancy": Trade((0.9, 1.1), 0.1), "sired": Trade((0.9, 1.1), 0.1)}),
        like_paper,
    ),
]


class Passed(NamedTuple):
    """§6.7.1: the parts of the calls that are set up and completed where messages pass with probability f."""

    f: float
    set_up: float
    completed: float


def worst(rows: list[Passed]) -> float:
    return max(max(abs(row.set_up - row.f**2), abs(row.completed - row.f**4)) for row in rows)


def products(rows: list[Passed]) -> Seen:
    numbers = "; ".join(
        f"f {row.f}: {row.set_up:.3f} ({row.f**2:.3f}), {row.completed:.3f} ({row.f**4:.3f})" for row in rows
    )
    return Seen(graded(worst(rows) <= 0.03, worst(rows) <= 0.1), numbers)


FORMULA: list[Claim[list[Passed]]] = [
    Claim(
        "000 §6.7.1: a call is set up with f², completed with f⁴",
        "reproduced",
        products,
        lambda rows: [row._replace(completed=row.f**3) for row in rows],
        "by construction",
    )
]
