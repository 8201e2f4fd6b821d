"""The capacity of an element, found by climbing."""

from collections.abc import Callable
from dataclasses import dataclass

from tidegate_bench.load import Load, Outcome

STEP = 1.25
# The share of calls that must be set up in time at a rate that is carried.
IN_TIME = 0.99
# One call in a hundred may take longer than this at a rate that is carried. An element that is offered a little
# more than it can carry lets calls wait, a tenth more for half a second after five: it would pass by its queue.
DELAY_MAX_MS = 100.0
_WARM_UP_S = 1.5
_MEASURED_S = 2.5
_STEPS_MAX = 40

Offer = Callable[[Load], Outcome]


@dataclass(frozen=True)
class Effort:
    """How closely a peak is found."""

    halvings: int
    """The last step is halved so often."""
    again: int
    """How often the highest rate has to be carried again, with other seeds."""


THOROUGH = Effort(halvings=2, again=3)
"""The peak is found to 6 %."""
QUICK = Effort(halvings=1, again=1)
"""The peak is found to 12 %, and may be carried by luck."""


def is_carried(outcome: Outcome) -> bool:
    """Whether the calls were set up in time, and not only because they could still wait."""
    return outcome.in_time >= IN_TIME and outcome.p99_ms <= DELAY_MAX_MS


def estimate(offer: Offer, share: float) -> float:
    """Calls/s that would fill `share` of a core at what a call costs under a light load.

    Too low rather than too high: under load an element does more at each wake.
    """
    light = offer(Load(200.0, 0.5, 1.0, seed=1))
    return share / (light.element_us_per_call / 1e6)


def climb(offer: Offer, start_cps: float, seed: int, effort: Effort = THOROUGH) -> tuple[float, Outcome]:
    """The highest rate carried time after time, and what it was like, climbing from `start_cps` or below."""
    rate, step, best, halvings = start_cps, STEP, None, 0
    for number in range(_STEPS_MAX):
        outcome = offer(Load(rate, _WARM_UP_S, _MEASURED_S, seed + number))
        if is_carried(outcome):
            best = (rate, outcome)
            if halvings:
                halvings, step = halvings + 1, step**0.5
        elif best:
            halvings, step = halvings + 1, step**0.5
        else:
            # Not even the start was carried.
            rate /= STEP**2
            continue
        if halvings > effort.halvings:
            break
        rate = best[0] * step
    if best is None:
        raise RuntimeError(f"not even {rate:.0f} calls/s are set up in time")
    # The machine is a quarter faster in some seconds than in others.
    rate, again = best[0], 0
    for number in range(_STEPS_MAX, 2 * _STEPS_MAX):
        outcome = offer(Load(rate, _WARM_UP_S, _MEASURED_S, seed + number))
        if not is_carried(outcome):
            rate, again = rate / step, 0
            continue
        again += 1
        if again == effort.again:
            return rate, outcome
    raise RuntimeError(f"{best[0]:.0f} calls/s are set up in time once, but not {effort.again} times more")


def peak(
    offer: Offer, share: float, before_cps: float | None, round_: int, effort: Effort = THOROUGH
) -> tuple[float, Outcome]:
    """The highest rate carried with a share of a core: from where the round before found it, or from an estimate."""
    start_cps = before_cps / STEP if before_cps else estimate(offer, share)
    return climb(offer, start_cps, 100 * round_, effort)
