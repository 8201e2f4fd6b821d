"""Overload control as an experiment varies it, and the most that any of it can keep."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate_bench.record import ROOT

# The loads of the overload experiments, as multiples of the capacity.
MULTIPLES = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class Variant:
    """A law, where it decides, and how messages queue: [overload] of a Tidegate."""

    law: str
    decide: str = "arrival"
    queue: str = "class"
    sticky: bool = True
    params: Mapping[str, float] = field(default_factory=dict)
    disposal: str = "reject"
    pad: int | None = None
    """Bytes to which a 503 is lengthened."""

    @property
    def name(self) -> str:
        return f"{self.law} ({self.decide}, {self.queue})"

    def tables(self) -> str:
        """As the configuration has it."""
        params = "".join(f"{name} = {value}\n" for name, value in self.params.items())
        pad = "" if self.pad is None else f"pad = {self.pad}\n"
        return f"""
[overload]
law = "{self.law}"
decide = "{self.decide}"
queue = "{self.queue}"
sticky = {str(self.sticky).lower()}
disposal = "{self.disposal}"
{pad}[overload.params]
{params}"""


# Refuses all but one call in ten thousand once it has seen its first messages: an occupancy
# that is always above the target.
REFUSING = Variant(
    "occupancy", "arrival", "class", params={"rho_targ": 0.01, "f_min": 0.0001, "measure": 1, "k": 2, "w": 1}
)


@dataclass(frozen=True)
class Costs:
    """What every message costs an emulated processor, in µs: [emulate] of a Tidegate."""

    offer_us: float
    serve_us: float
    refuse_us: float

    @property
    def call_s(self) -> float:
        """s: of a call that is served: INVITE, 180, 200, ACK, BYE and 200."""
        return 6 * (self.offer_us + self.serve_us) / 1e6

    @property
    def refusal_s(self) -> float:
        """r: of a call that is refused: its INVITE, and the ACK to the 503."""
        return (2 * self.offer_us + self.refuse_us) / 1e6

    @property
    def capacity_cps(self) -> float:
        """C: calls/s that fill the processor."""
        return 1 / self.call_s

    @property
    def ratio(self) -> float:
        """r/s."""
        return self.refusal_s / self.call_s

    def tables(self) -> str:
        """As the configuration has it."""
        return f"""
[emulate]
offer_us = {self.offer_us}
serve_us = {self.serve_us}
refuse_us = {self.refuse_us}
"""


@dataclass(frozen=True)
class Scenario:
    """What a file of `scenarios` says of the server and of the laws it is run with."""

    costs: Costs
    queue_max: int
    variants: list[Variant]

    @classmethod
    def read(cls, name: str = "overload-local") -> "Scenario":
        tables = tomllib.loads((ROOT / "scenarios" / f"{name}.toml").read_text())
        return cls(
            costs=Costs(**tables["emulate"]),
            queue_max=tables["server"]["queue_max"],
            variants=[Variant(**variant["overload"]) for variant in tables["variant"]],
        )


def bound(multiple: float, ratio: float) -> float:
    """The most goodput, as a part of the capacity, that any law can keep at `multiple` of it.

    `ratio` is r/s: what it costs to dispose of a call, over what it costs to serve one.
    """
    if multiple <= 1:
        return multiple
    if ratio >= 1:
        return 0.0
    return min(max((1 - multiple * ratio) / (1 - ratio), 0.0), 1.0)
