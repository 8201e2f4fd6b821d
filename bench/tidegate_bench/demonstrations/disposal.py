"""The goodput of the law pi with each disposal, on a fifth of a core, up to 10 times its peak

Nothing is emulated: the kernel gives Tidegate 1 ms of every 5. Its peak, and s, the CPU time for a served call, are
measured without control, as in show-default. Calls that are not admitted get a 503 (`reject`), 503s of one length
(`padded`), or no response (`drop`: the caller retransmits). With `kernel` they get a 503 as long as rejecting takes no
more than its share of the processor. Beyond that, the kernel drops INVITEs unread. r is the CPU time for a rejected
call with all its retransmissions, under a law that rejects nearly every call. The r of `kernel` falls with the load, so
it is measured at each load. The bound is computed from the r and s of the same run, and from the load that the
generator really offered.

Everything runs on one machine. The kernel's work on a datagram, until it is in a buffer or is dropped, is charged to
the sender. Between machines the receiver pays for this work. The calls come from one address, like those of a trunk,
with names of 16 lengths, so some 503s have the same length without padding too. The table also shows the share of all
datagrams that were sent in batches.
"""

from dataclasses import dataclass, replace
from typing import Any

from tidegate_bench import curve, peak, table
from tidegate_bench.curve import AtPeak, CurveDemonstration
from tidegate_bench.demonstration import Results
from tidegate_bench.load import Load, Outcome, trial
from tidegate_bench.overload import REJECTING, Variant, bound
from tidegate_bench.quota import SHARE
from tidegate_bench.record import Record
from tidegate_bench.table import Column
from tidegate_bench.tidegate import Metrics

MULTIPLES = (1.0, 2.0, 3.0, 5.0, 10.0)
# The load at which r is measured if it does not depend on the load.
REJECTING_AT = 3.0
# Calls like those of a trunk: from one address, with names of different lengths.
CALLERS = ("--callers", "1000", "--uneven")
# A length above that of any 503 to our caller.
PAD = 512

UNPROTECTED = Variant("none", "service", "fifo", sticky=False)
PROTECTED = Variant("pi", "arrival", "class")
DISPOSALS: dict[str, dict[str, Any]] = {
    "reject": {},
    "padded": {"pad": PAD},
    "drop": {"disposal": "drop"},
    "kernel": {"disposal": "kernel"},
}


@dataclass(frozen=True)
class Trial(AtPeak):
    """One disposal under one load, in one round, with the counts of Tidegate itself."""

    disposal: str
    served_us: float
    rejected_us: float
    filtered: int
    """Datagrams that the kernel shed on purpose."""
    sent: int
    in_trains: int

    @property
    def lost(self) -> int:
        """Datagrams that Tidegate's full sockets dropped."""
        return max(self.outcome.usage.element_drops - self.filtered, 0)

    @property
    def ratio(self) -> float:
        """r/s."""
        return self.rejected_us / self.served_us

    @property
    def bound(self) -> float:
        return bound(self.offered, self.ratio)

    @property
    def of_bound(self) -> float | None:
        """Goodput as a part of the bound, or `None` if the bound is 0."""
        return self.goodput / self.bound if self.bound > 0 else None

    def row(self) -> dict[str, Any]:
        return super().row() | {name: round(getattr(self, name), 4) for name in ("offered", "bound", "lost")}


def measure(law: Variant, load: Load, profile: str) -> tuple[Outcome, Metrics]:
    return trial(load, law, profile, limited=True, options=CALLERS)


def rejecting(disposal: str, peak_cps: float, round_: int, profile: str) -> dict[float, float]:
    """Returns r, the CPU time for a rejected call in µs, for each load."""
    law = replace(REJECTING, **DISPOSALS[disposal])

    def at(multiple: float) -> float:
        return measure(law, Load(multiple * peak_cps, 1.0, 2.0, seed=round_), profile)[0].element_us_per_call

    if disposal == "kernel":
        found = {multiple: at(multiple) for multiple in MULTIPLES if multiple > 1}
        return {1.0: found[min(found)], **found}
    return dict.fromkeys(MULTIPLES, at(REJECTING_AT))


COLUMNS = [
    Column("offered", lambda trial: trial.offered, 2),
    curve.GOODPUT,
    *curve.BOUND,
    Column("r, µs", lambda trial: trial.rejected_us, 1),
    Column("r/s", lambda trial: trial.ratio, 3),
    *curve.OUTCOME,
    Column("in trains", lambda trial: trial.in_trains / max(trial.sent, 1), 2),
    Column("lost", lambda trial: trial.lost, 0, "sum"),
    Column("filtered", lambda trial: trial.filtered, 0, "sum"),
]


def judge(record: Record, trials: list[Trial]) -> None:
    """Expects each disposal to have had the effect that its name promises."""

    def of(disposal: str) -> list[Trial]:
        return [one for one in trials if one.disposal == disposal and one.multiple > 1]

    for disposal in ("reject", "padded"):
        fewest = min(one.outcome.rejected_cps for one in of(disposal))
        record.expect(fewest > 0, f"{disposal}: {fewest:.0f} calls/s or more get a 503")
    most = max(one.outcome.rejected_cps for one in of("drop"))
    record.expect(most == 0, f"drop: {most:.0f} calls/s get a 503")
    shed = sum(one.filtered for one in of("kernel"))
    record.expect(shed > 0, f"kernel: {shed} datagrams are shed unread")
    others = sum(one.filtered for one in trials if one.disposal != "kernel")
    record.expect(others == 0, f"the other disposals: {others} datagrams are shed unread")
    trains = [one.in_trains for one in of("padded")]
    record.expect(min(trains) > 0, f"padded: {min(trains)} datagrams or more are sent in batches")


class Show(CurveDemonstration):
    WARM_UP_S = 1.0
    MEASURED_S = 2.0

    def run(self) -> Results:
        trials: list[Trial] = []
        peak_cps: float | None = None
        for round_ in self.rounds:
            peak_cps, full = peak.peak(
                lambda load: measure(UNPROTECTED, load, self.profile)[0], SHARE, peak_cps, round_
            )
            served_us = full.element_us_per_call
            print(f"round {round_}: {peak_cps:.0f} calls/s without control, s = {served_us:.1f} µs", flush=True)
            for disposal, keys in DISPOSALS.items():
                rejected_us = rejecting(disposal, peak_cps, round_, self.profile)
                for multiple, r_us in rejected_us.items():
                    load = self.load(multiple * peak_cps, round_)
                    outcome, shown = measure(replace(PROTECTED, **keys), load, self.profile)
                    counts = [shown.total(f"udp_{name}") for name in ("filtered", "sent", "sent_in_trains")]
                    trials.append(Trial(round_, multiple, peak_cps, outcome, disposal, served_us, r_us, *counts))
        table.show(trials, COLUMNS, line=lambda one: f"{one.multiple:4.1f}", block=lambda one: one.disposal)
        rows = self.rows("results", [one.row() for one in trials])
        judge(self, trials)
        return {"points": rows}
