"""The load of `load.py` made by SIPp. The outcome of the calls is read from SIPp's traces."""

import signal
from collections.abc import Sequence

from tidegate_bench import sipp
from tidegate_bench.load import DEADLINE_S, Load, Outcome, run
from tidegate_bench.process import Process, Stage
from tidegate_bench.sipp import Sipp
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.tidegate import Callee

_SCENARIO = "uac-overload"


def offer(
    stage: Stage,
    element: Process,
    target: str,
    callee: Callee,
    load: Load,
    _profile: str = "debug",
    host: str = LOCALHOST,
    options: Sequence[str] = (),
) -> Outcome:
    """Offers the load from `host` at even intervals, and ends SIPp after the last deadline."""
    started: list[Sipp] = []

    def start() -> Process:
        started.append(
            sipp.caller(
                stage,
                "uac",
                target,
                rate_cps=load.rate_cps,
                calls=round(load.rate_cps * load.seconds),
                scenario=_SCENARIO,
                traced=True,
                host=host,
                options=options,
            )
        )
        return started[-1].process

    _, usage = run(start, element, callee.process, load, lambda caller: caller.stop(signal.SIGTERM))
    [caller] = started

    def begun_in_time(answer: tuple[float, float]) -> bool:
        at, delay = answer
        return load.warm_up_s <= at - delay < load.seconds

    delays = sorted(delay for at, delay in filter(begun_in_time, caller.response_times()))
    counts = caller.counts()
    before = next(row for row in counts if row["elapsed_s"] >= load.warm_up_s)
    after = next((row for row in counts if row["elapsed_s"] >= load.seconds), counts[-1])
    seconds = after["elapsed_s"] - before["elapsed_s"]

    def counted(name: str) -> float:
        return after[name] - before[name]

    return Outcome(
        calls=int(counts[-1]["0_INVITE_Sent"]),
        offered_cps=counted("0_INVITE_Sent") / seconds,
        goodput_cps=sum(delay <= DEADLINE_S for delay in delays) / load.measured_s,
        refused_cps=counted("3_503_Recv") / seconds,
        retransmission_ratio=counted("0_INVITE_Retrans") / max(counted("0_INVITE_Sent"), 1),
        p50_ms=1e3 * _quantile(delays, 0.5),
        p99_ms=1e3 * _quantile(delays, 0.99),
        too_slow=counted("0_INVITE_Sent") / seconds < 0.98 * load.rate_cps,
        usage=usage,
    )


def _quantile(ascending: Sequence[float], share: float) -> float:
    if not ascending:
        return 0.0
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)]
