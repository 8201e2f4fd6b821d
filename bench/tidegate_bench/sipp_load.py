"""The load of `load.py` made by SIPp. The outcome of the calls is read from SIPp's traces."""

import signal
from collections.abc import Sequence

from tidegate_bench import sipp
from tidegate_bench.load import DEADLINE_S, Load, Outcome, run
from tidegate_bench.process import Process, Stage
from tidegate_bench.record import quantile
from tidegate_bench.sipp import Sipp
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.tidegate import Callee

_SCENARIO = "uac-overload"
# The least part of the calls that SIPp must send, unless it was too slow.
SENT_MIN = 0.98


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

    def start_one() -> Process:
        started.append(start(stage, "uac", target, load, host, options))
        return started[-1].process

    _, usage = run(start_one, element, callee.process, load, lambda caller: caller.stop(signal.SIGTERM))
    [caller] = started
    set_up = delays(caller, load)
    sent_cps = rate(caller, load, "0_INVITE_Sent")
    return Outcome(
        calls=int(caller.counts()[-1]["0_INVITE_Sent"]),
        offered_cps=sent_cps,
        goodput_cps=goodput_cps(caller, load),
        rejected_cps=rate(caller, load, "3_503_Recv"),
        retransmission_ratio=rate(caller, load, "0_INVITE_Retrans") / (sent_cps or 1.0),
        p50_ms=_quantile_ms(set_up, 0.5),
        p99_ms=_quantile_ms(set_up, 0.99),
        too_slow=sent_cps < SENT_MIN * load.rate_cps,
        usage=usage,
    )


def start(
    stage: Stage,
    name: str,
    target: str,
    load: Load,
    host: str = LOCALHOST,
    options: Sequence[str] = (),
    scenario: str = _SCENARIO,
) -> Sipp:
    """Starts a SIPp that offers the load from `host` at even intervals."""
    return sipp.caller(
        stage,
        name,
        target,
        rate_cps=load.rate_cps,
        calls=round(load.rate_cps * load.seconds),
        scenario=scenario,
        traced=True,
        host=host,
        options=options,
    )


def behind_transactions(stage: Stage) -> str:
    """Returns the file of a scenario whose calls may be rejected by 500 too.

    RFC 3261 §16.7 item 6: "A proxy which receives a 503 (Service Unavailable) response SHOULD NOT forward it upstream
    unless it can determine that any subsequent requests it might proxy will also generate a 503."
    """
    rejection = '  <recv response="503" optional="true" next="rejected"/>\n'
    text = (sipp.SCENARIOS / f"{_SCENARIO}.xml").read_text()
    assert rejection in text
    file = stage.directory / "uac-behind.xml"
    file.write_text(text.replace(rejection, rejection + rejection.replace("503", "500")))
    return str(file)


def delays(caller: Sipp, load: Load) -> list[float]:
    """Returns the set-up delays in s, in ascending order, of the calls that began in the measured time."""
    answers = caller.response_times()
    return sorted(delay for at, delay in answers if load.warm_up_s <= at - delay < load.seconds)


def goodput_cps(caller: Sipp, load: Load) -> float:
    """Returns how many calls a second were set up within the deadline, of those that began in the measured time."""
    return sum(delay <= DEADLINE_S for delay in delays(caller, load)) / load.measured_s


def rate(caller: Sipp, load: Load, name: str) -> float:
    """Returns how many messages of a kind, such as `0_INVITE_Sent`, there were a second in the measured time."""
    counts = caller.counts()
    before = next(row for row in counts if row["elapsed_s"] >= load.warm_up_s)
    after = next((row for row in counts if row["elapsed_s"] >= load.seconds), counts[-1])
    return (after[name] - before[name]) / (after["elapsed_s"] - before["elapsed_s"])


def _quantile_ms(delays_s: Sequence[float], share: float) -> float | None:
    return 1e3 * quantile(delays_s, share) if delays_s else None
