"""The capacity of an element, found by raising the rate."""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate_bench.load import Load, Outcome

STEP = 1.25
# The share of calls that must be set up in time so that a rate counts as carried.
IN_TIME = 0.99
# At a carried rate, at most one call in a hundred may take longer than this. An element that gets slightly more calls
# than it can carry lets them wait. With a tenth more, calls wait for half a second after five seconds, so without this
# limit the rate would count as carried.
DELAY_MAX_MS = 100.0
_WARM_UP_S = 1.5
_MEASURED_S = 2.5
_STEPS_MAX = 40
ATTEMPTS_MAX = 3
"""How often a load is offered if the generator is too slow or loses messages."""

Offer = Callable[[Load], Outcome]


@dataclass(frozen=True)
class Effort:
    """The effort of a search for a peak, which determines how exact the peak is."""

    halvings: int
    """The number of times that the last step is halved."""
    again: int
    """The number of times that the highest rate has to be carried again, with other seeds."""


THOROUGH = Effort(halvings=2, again=3)
"""The peak is found to within 6 %."""
QUICK = Effort(halvings=1, again=1)
"""The peak is found to within 12 %, and may have been carried by chance."""


def is_in_time(outcome: Outcome) -> bool:
    """Returns whether the calls were set up in time, and fast enough that no queue was still growing."""
    return outcome.in_time >= IN_TIME and outcome.p99_ms is not None and outcome.p99_ms <= DELAY_MAX_MS


def carried(offer: Offer, load: Load) -> Outcome | None:
    """Offers a load. Returns the outcome if the whole load was offered and its calls were set up in time.

    Repeats the run if the generator was too slow or lost messages, because the machine may have been busy with
    something else. Lost messages do not help the element, so calls that were in time nevertheless count as carried.
    """
    for _ in range(ATTEMPTS_MAX):
        outcome = offer(load)
        if is_in_time(outcome) and not outcome.too_slow:
            return outcome
        if not outcome.generator_failed:
            return None
    print(
        f"the generator is too slow to offer {load.rate_cps:.0f} calls/s, or loses messages, so the peak may be higher",
        flush=True,
    )
    return None


def estimate(offer: Offer, share: float) -> float:
    """Returns the calls/s that would fill `share` of a core if each call cost as much as under a light load.

    The estimate is rather too low, because under load an element does more work at each wake.
    """
    light = offer(Load(200.0, 0.5, 1.0, seed=1))
    return share / (light.element_us_per_call / 1e6)


def climb(offer: Offer, start_cps: float, seed: int, effort: Effort = THOROUGH) -> tuple[float, Outcome]:
    """Returns the highest rate that is carried repeatedly, and its outcome.

    The search starts at `start_cps`, and goes down if this rate is not carried.
    """
    rate, step, best, halvings = start_cps, STEP, None, 0
    for number in range(_STEPS_MAX):
        outcome = carried(offer, Load(rate, _WARM_UP_S, _MEASURED_S, seed + number))
        if outcome:
            best = (rate, outcome)
            if halvings:
                halvings, step = halvings + 1, step**0.5
        elif best:
            halvings, step = halvings + 1, step**0.5
        else:
            # Even the first rate was not carried.
            rate /= STEP**2
            continue
        if halvings > effort.halvings:
            break
        rate = best[0] * step
    if best is None:
        raise RuntimeError(f"not even {rate:.0f} calls/s are set up in time")
    # In some seconds the machine is a quarter faster than in others, so one run is not enough.
    rate, again = best[0], 0
    for number in range(_STEPS_MAX, 2 * _STEPS_MAX):
        outcome = carried(offer, Load(rate, _WARM_UP_S, _MEASURED_S, seed + number))
        if not outcome:
            rate, again = rate / step, 0
            continue
        again += 1
        if again == effort.again:
            return rate, outcome
    raise RuntimeError(f"{best[0]:.0f} calls/s are set up in time once, but not {effort.again} times more")


def peak(
    offer: Offer, share: float, before_cps: float | None, round_: int, effort: Effort = THOROUGH
) -> tuple[float, Outcome]:
    """Finds the highest rate carried with a share of a core. Starts below the last round's peak, or at an estimate."""
    start_cps = before_cps / STEP if before_cps else estimate(offer, share)
    return climb(offer, start_cps, 100 * round_, effort)
