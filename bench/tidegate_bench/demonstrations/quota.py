"""Kamailio with a quota and without overload control: predicted from loads below 0.7, then overloaded

Kamailio has one worker and a quota of the kernel. It is offered loads below 0.7 of its capacity, with bursts and
without, and with calls that nobody answers. Three costs follow from its CPU time, by least squares: those of an INVITE,
of another message, and of a wake. The size of its receive buffer is read from its socket, and the tick from the
configuration of the kernel. With these values scenarios/predict-quota.toml predicts loads up to three times the
capacity. The same loads are then offered to the real Kamailio. Each round begins with the costs again. The table shows
the error of the goodput in parts of the capacity, and the p99 of the set-up delay.
"""

import argparse
import contextlib
from dataclasses import dataclass

from tidegate_bench import kamailio, program, table, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.kamailio import DEFAULT_BUFFER_BYTES
from tidegate_bench.load import Load, Outcome, judge_generator, offer
from tidegate_bench.prediction import COLUMNS, Round, compare, judge
from tidegate_bench.process import Stage
from tidegate_bench.quota import SHARE, Quota, tick_ms
from tidegate_bench.sockets import buffer_bytes
from tidegate_bench.uas import UserAgentServer

SCENARIO = "scenarios/predict-quota.toml"
WARM_UP_S = 3.0
MEASURED_S = 4.0
# Messages of a call besides its INVITE: 180, 200, ACK, BYE and 200.
OTHERS = 5
# Unanswered calls, each of one INVITE, that take the place of one answered call in the calibration.
UNANSWERED = 4.0
# Loads of the calibration, as parts of the capacity that follows from the first run.
CALIBRATED = (0.25, 0.45, 0.65)
# Calls/s of the first run. This load is far below the capacity.
PILOT_CPS = 200.0
# Arrivals of the calibration. In a burst of 1 or 3 ms calls come at 20 times the rate. Then several messages wait at
# once, and one wake serves them. The mean rate is the same.
ARRIVALS = ("poisson", "mmpp:0.05=0.02,20=0.001", "mmpp:0.05=0.06,20=0.003")


@dataclass(frozen=True)
class Sample:
    """A run of the calibration. Rates are per second."""

    load: float
    arrivals: str
    answered: bool
    cpu: float
    """CPU usage in cores."""
    invites: float
    others: float
    wakes: float
    in_time: float


def costs_us(samples: list[Sample]) -> list[float]:
    """Returns the costs of an INVITE, another message and a wake, with the least squares of the relative errors."""
    rows = [[s.invites / s.cpu, s.others / s.cpu, s.wakes / s.cpu] for s in samples]
    # Normal equations of rows · costs = 1, solved by elimination.
    size = range(3)
    matrix = [[sum(r[i] * r[j] for r in rows) for j in size] + [sum(r[i] for r in rows)] for i in size]
    for i in size:
        for k in size:
            if k != i:
                factor = matrix[k][i] / matrix[i][i]
                matrix[k] = [x - factor * y for x, y in zip(matrix[k], matrix[i], strict=True)]
    return [1e6 * matrix[i][3] / matrix[i][i] for i in size]


class Silent(UserAgentServer):
    """A back end that receives everything and sends nothing."""

    def responses(self, method: str, request: bytes) -> list[bytes]:
        return []


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--period", type=float, default=100, help="period of the quota in ms (default %(default)s)")
        parser.add_argument(
            "--share", type=float, default=SHARE, help="quota of the server, as a share of a core (default %(default)s)"
        )
        parser.add_argument(
            "--tick",
            type=float,
            help="time between two ticks of the kernel's clock in ms (default: that of this kernel)",
        )

    def trial(self, load: Load, *, answered: bool = True) -> tuple[Outcome, int]:
        """Offers a load to a fresh Kamailio. Returns the outcome and the size of its receive buffer.

        If the calls are not `answered`, its back end receives them and is silent.
        """
        period_us = round(1000 * self.options.period)
        with Quota(self.options.share, period_us) as quota, Stage() as stage, contextlib.ExitStack() as stack:
            silent = Silent()
            stack.callback(silent.stop)
            callee = tidegate.callee(stage, "uas", self.profile) if answered else None
            port = callee.port if callee else silent.port
            server = kamailio.run(stage, port, buffer_bytes=DEFAULT_BUFFER_BYTES, quota=quota)
            room = buffer_bytes(server.port)
            # So each unanswered call is one message.
            options = [] if answered else ["--no-retransmissions"]
            outcome = offer(stage, server.process, server.address, callee, load, self.profile, options=options)
            stage.kill()
        return outcome, room

    def calibrate(self) -> tuple[str, list[Sample]]:
        """Measures the costs of messages at low loads. Returns the text of a file of costs, and the runs."""
        samples: list[Sample] = []

        def sample(load: float, cps: float, arrivals: str, *, answered: bool = True) -> int:
            outcome, room = self.trial(Load(cps, 1.0, 2.5, seed=1, arrivals=arrivals), answered=answered)
            usage = outcome.usage
            cpu = usage.steady_cpu_s / usage.steady_s
            invites, others = outcome.offered_cps, OTHERS * outcome.offered_cps if answered else 0.0
            samples.append(Sample(load, arrivals, answered, cpu, invites, others, usage.wakes_per_s, outcome.in_time))
            return room

        room = sample(0.0, PILOT_CPS, ARRIVALS[-1])
        capacity = self.options.share * PILOT_CPS / samples[0].cpu
        for load in CALIBRATED:
            for arrivals in ARRIVALS:
                sample(load, load * capacity, arrivals)
                sample(load, load * capacity * UNANSWERED, arrivals, answered=False)
        invite_us, other_us, wake_us = costs_us(samples)
        tick = tick_ms() if self.options.tick is None else self.options.tick
        lines = [
            f"serve_us = {{ default = {other_us:.3f}, invite = {invite_us:.3f} }}",
            f"wake_us = {max(wake_us, 0):.3f}",
            "batch = 1",
            "socket_max = 1_000_000",
            f"socket_bytes = {room}",
            f"quota = {self.options.share}",
            f"period_ms = {self.options.period}",
            f"tick_ms = {tick}",
        ]
        head = f"# Kamailio, measured at loads of at most {max(CALIBRATED)}.\n[emulate]\n"
        return head + "\n".join(lines) + "\n", samples

    def run(self) -> Results:
        with Quota(self.options.share, round(1000 * self.options.period)) as quota:
            runs_ms, waits_ms = quota.stretches_ms()
        print(f"under this quota a busy thread runs for {runs_ms:.1f} ms and then waits for {waits_ms:.1f} ms")
        rounds = [self.round(round_) for round_ in self.rounds]
        rows = self.rows("results", compare(rounds))
        table.show(rows, COLUMNS, line=lambda row: f"{row['load']:4.1f}")
        judge(self, rows)
        judge_generator(self, [run for each in rounds for run in each.runs])
        return {"capacity_cps": [each.capacity_cps for each in rounds], "rows": rows}

    def round(self, round_: int) -> Round:
        """Predicts the results from costs that it measures, and measures the results."""
        text, samples = self.calibrate()
        self.rows(f"calibration-{round_}", [vars(sample) for sample in samples])
        for sample in samples:
            print(f"calibration: {vars(sample)}")
        print(text, flush=True)
        costs, out = self.directory / f"costs-{round_}.toml", self.directory / f"sim-{round_}"
        costs.write_text(text)
        prediction = program.scenario(SCENARIO, out, "--world", "sim", "--costs", costs, profile=self.profile)
        capacity = prediction["capacity_cps"]
        print(f"predicted capacity: {capacity:.0f} calls/s", flush=True)
        runs = []
        for row in prediction["rows"]:
            load = Load(row["load"] * capacity, WARM_UP_S, MEASURED_S, seed=round_)
            runs.append(self.trial(load)[0])
        print(f"round {round_} of {len(self.rounds)} done", flush=True)
        return Round(prediction, runs)
