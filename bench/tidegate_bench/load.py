"""An open load of calls: it does not depend on their outcome, and is measured after a warm-up."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tidegate_bench import tidegate
from tidegate_bench.overload import Variant
from tidegate_bench.process import NS, Process, Stage
from tidegate_bench.quota import Quota, Throttled
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.tidegate import Callee, Metrics, built, cut, read_report

DEADLINE_S = 0.5
# Time for the answers to the last calls. Some are still in transit when the deadline of the last call has passed.
REST_S = DEADLINE_S + 0.2
# Time from the start of the caller's process to its first call.
_START_S = 0.02
# Maximum number of open calls or registrations. In a collapse none of the last half minute has ended.
_OPEN_MAX = 2_000_000


@dataclass(frozen=True)
class Load:
    """Calls at a rate, first for the warm-up, then measured."""

    rate_cps: float
    warm_up_s: float
    measured_s: float
    seed: int
    arrivals: str = "poisson"

    @property
    def seconds(self) -> float:
        return self.warm_up_s + self.measured_s


@dataclass(frozen=True)
class Usage:
    """The cost of a load. Occupancies are in cores, during the time in which calls were offered."""

    element_cpu_s: float
    """CPU time of the element for all calls, until the deadline of the last one has passed."""
    element: float
    caller: float
    callee: float
    drops: int
    """Datagrams lost by the sockets of the caller and the callee."""
    element_drops: int
    steady_cpu_s: float
    """CPU time of the element in the measured time."""
    steady_s: float
    wakes_per_s: float
    """Number of times a second that threads of the element went to sleep, in the measured time."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a load. Rates and delays are those of the measured time."""

    calls: int
    """All calls that were started, including the warm-up."""
    offered_cps: float
    goodput_cps: float
    """Calls set up within the deadline."""
    rejected_cps: float
    """Calls answered with 503."""
    retransmission_ratio: float
    """Retransmitted INVITEs per first INVITE."""
    p50_ms: float | None
    p99_ms: float | None
    """Set-up delay of the calls that were set up, in time or not. `None` if no call was set up."""
    too_slow: bool
    """True if the caller was too slow to offer the requested load."""
    usage: Usage
    opened: int = 0
    """Connections of the caller, also those of the warm-up."""
    own_losses: int = 0
    """Calls, messages and connections that the caller itself had no room for, and datagrams that it could not send."""
    throttled: Throttled | None = None
    """Throttling of the element by its quota, from its start to the end of the load. `None` if it was not recorded."""

    @property
    def lost(self) -> int:
        """Losses of the generator: datagrams at the sockets of caller and callee, and `own_losses`."""
        return self.usage.drops + self.own_losses

    @property
    def generator_failed(self) -> bool:
        """Returns whether the generator was too slow or lost something. Then the outcome says little of the element."""
        return self.too_slow or self.lost > 0

    @property
    def in_time(self) -> float:
        """The share of the calls that were set up within the deadline."""
        return self.goodput_cps / self.offered_cps if self.offered_cps else 0.0

    def row(self) -> dict[str, Any]:
        """Returns a row for a table of raw data, with all values including those of the usage."""
        row = asdict(self)
        usage = row.pop("usage")
        throttled = row.pop("throttled")
        quota = throttled._asdict() if throttled else dict.fromkeys(Throttled._fields)
        return {**row, **usage, **quota}

    @property
    def element_us_per_call(self) -> float:
        """CPU time of the element for each call that was started."""
        return 1e6 * self.usage.element_cpu_s / max(self.calls, 1)

    @property
    def steady_us_per_call(self) -> float:
        """CPU time of the element in the measured time for each call that was started in it."""
        return 1e6 * self.usage.steady_cpu_s / max(self.offered_cps * self.usage.steady_s, 1.0)


def judge_generator(record: Record, outcomes: Sequence[Outcome]) -> None:
    """Expects that the generator offered its load in every run and lost nothing.

    Otherwise a run may not describe the element.
    """
    slow = sum(outcome.too_slow for outcome in outcomes)
    record.expect(slow == 0, f"the generator was too slow in {slow} of {len(outcomes)} runs")
    lost = sum(outcome.lost for outcome in outcomes)
    runs = sum(outcome.lost > 0 for outcome in outcomes)
    record.expect(lost == 0, f"the generator lost {lost} messages in {runs} of {len(outcomes)} runs")


def own_losses(report: Mapping[str, Any]) -> int:
    """Returns the losses of the generator by its own report, without the datagrams that its sockets dropped."""
    usage = report["usage"]
    streams = usage["streams"] or {}
    of_streams = streams.get("excess", 0) + streams.get("overflow", 0)
    return int(report["stats"]["not_begun"] + usage["send_drops"] + of_streams)


def words(load: Load, report: Path, slack_ms: float = 1.0, cool_down_s: float = 0.0) -> list[str]:
    """Returns options of `tidegate load` that offer the load and write a report. Calls may start `slack_ms` late.

    The load goes on for `cool_down_s` after the measured time.
    """
    options = ["--rate", str(load.rate_cps), "--duration", str(load.seconds + cool_down_s)]
    options += ["--warm-up", str(load.warm_up_s)]
    options += ["--deadline", str(1000 * DEADLINE_S), "--arrivals", load.arrivals, "--seed", str(load.seed)]
    return [*options, "--slack", str(slack_ms), "--open-max", str(_OPEN_MAX), "--json", str(report)]


def delay_ms(delays: Mapping[str, Any], name: str) -> float | None:
    """Returns a quantile of the delays in a report, such as `p99`, in ms. Returns `None` if there are no delays."""
    return float(delays[f"{name}_us"]) / 1e3 if delays["count"] else None


def outcome_of(
    report: Mapping[str, Any],
    load: Load,
    usage: Usage,
    in_time: str = "set_up_in_time",
    repeated: str = "repeated_invites",
    delay: str = "set_up_delay",
) -> Outcome:
    """Returns the outcome of a load from a report of `tidegate load`. `in_time` to `delay` name values in it."""
    stats, streams = report["stats"], report["usage"]["streams"] or {}
    measured = stats["measured"]
    return Outcome(
        calls=stats["begun"],
        offered_cps=measured["offered"] / load.measured_s,
        goodput_cps=measured[in_time] / load.measured_s,
        rejected_cps=measured["rejected"] / load.measured_s,
        retransmission_ratio=measured[repeated] / max(measured["offered"], 1),
        p50_ms=delay_ms(measured[delay], "p50"),
        p99_ms=delay_ms(measured[delay], "p99"),
        # A caller reports how slow it was, a registering user only whether it was.
        too_slow=bool(report["too_slow"]),
        usage=usage,
        opened=streams.get("opened", 0),
        own_losses=own_losses(report),
    )


def offer(
    stage: Stage,
    element: Process,
    target: str,
    callee: Callee | None,
    load: Load,
    profile: str = "debug",
    host: str = LOCALHOST,
    options: Sequence[str] = (),
) -> Outcome:
    """Offers the load to the element at `target`, and ends the caller after the last deadline.

    The caller is at the address `host` and gets these `options`. Without a `callee`, no usage of a callee is measured.
    """
    file = stage.directory / "uac.json"
    file.unlink(missing_ok=True)
    command = [built("tidegate", profile), "load", "uac", target, "--bind", f"{host}:0"]
    # The load goes on until the deadline of the last measured call.
    command += [*words(load, file, cool_down_s=DEADLINE_S), "--cool-down", str(DEADLINE_S)]
    # Otherwise an element that does not record its route would get no ACK and no BYE.
    command += ["--no-record-route", *options]

    answerer = callee.process if callee else None
    caller, usage = run(lambda: stage.start("uac", command), element, answerer, load, cut)
    return outcome_of(read_report(caller, file), load, usage)


def run(
    start: Callable[[], Process], element: Process, callee: Process | None, load: Load, end: Callable[[Process], None]
) -> tuple[Process, Usage]:
    """Runs the caller that `start` starts until the deadline of the last calls has passed. Then ends it by `end`.

    Without a `callee`, only the usage of the element and of the caller is measured. Ends the script if the element or
    the callee has ended, because a load without answers says nothing about the element.
    """
    callees = [callee] if callee else []

    def cpu_s(*processes: Process) -> list[float]:
        return [process.cpu_ns() / NS for process in processes]

    at_start = cpu_s(element, *callees)
    caller = start()
    begun = time.monotonic()
    caller.wait(_START_S + load.warm_up_s)
    [steady_from], wakes_from, measured_from = cpu_s(element), element.wakes(), time.monotonic()
    caller.wait(begun + _START_S + load.seconds - time.monotonic())
    offered_s = time.monotonic() - begun
    offered = cpu_s(element, *callees)
    [caller_s] = cpu_s(caller)
    steady_s, wakes = time.monotonic() - measured_from, element.wakes() - wakes_from
    caller.wait(REST_S)
    [at_end] = cpu_s(element)
    drops = caller.drops()
    end(caller)
    # A process that is just ending shows no threads.
    caller_s = caller_s or cpu_s(caller)[0]
    for process in (element, *callees):
        process.require_running()
    return caller, Usage(
        element_cpu_s=at_end - at_start[0],
        element=(offered[0] - at_start[0]) / offered_s,
        caller=caller_s / offered_s,
        callee=(sum(offered[1:]) - sum(at_start[1:])) / offered_s,
        drops=max(drops, caller.drops()) + sum(process.drops() for process in callees),
        element_drops=element.drops(),
        steady_cpu_s=offered[0] - steady_from,
        steady_s=steady_s,
        wakes_per_s=wakes / steady_s,
    )


Offer = Callable[..., Outcome]


def trial(
    load: Load,
    law: Variant,
    profile: str = "debug",
    *,
    limited: bool = False,
    tables: str = "",
    by: Offer = offer,
    options: Sequence[str] = (),
    **configuration: Any,
) -> tuple[Outcome, Metrics]:
    """Offers one load to a fresh Tidegate with a law and a fresh callee. Returns the outcome and Tidegate's metrics.

    `limited` gives Tidegate a fifth of a core. The function `by` makes the calls, with these `options`.
    """
    with Quota() if limited else nullcontext() as quota, Stage() as stage:
        callee = tidegate.callee(stage, "uas", profile)
        edge = tidegate.start(stage, [callee.port], profile, quota, tables=law.tables() + tables, **configuration)
        outcome = by(stage, edge.process, edge.address, callee, load, profile, options=options)
        metrics = edge.metrics()
        if quota:
            outcome = replace(outcome, throttled=quota.throttled())
        # An overloaded server may take long to stop in an orderly way.
        stage.kill()
    return outcome, metrics
