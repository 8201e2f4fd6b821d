"""The overload control that an experiment varies, and the greatest possible goodput."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate_bench.record import ROOT

# The loads of the overload experiments, as multiples of the capacity.
MULTIPLES = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class Variant:
    """The table [overload] of a Tidegate: a law, the point at which it decides, and the queues of messages."""

    law: str
    decide: str = "arrival"
    queue: str = "class"
    sticky: bool = True
    params: Mapping[str, float] = field(default_factory=dict)
    disposal: str = "reject"
    pad: int | None = None
    """Length in bytes to which a 503 is padded."""

    @property
    def name(self) -> str:
        return f"{self.law} ({self.decide}, {self.queue})"

    def tables(self) -> str:
        """Returns the tables of the configuration."""
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


# After the first messages, this law admits one call in ten thousand, because the occupancy is always above the target.
REJECTING = Variant(
    "occupancy", "arrival", "class", params={"rho_targ": 0.01, "f_min": 0.0001, "measure": 1, "k": 2, "w": 1}
)


@dataclass(frozen=True)
class Costs:
    """The cost of a message on an emulated processor, in µs: the table [emulate]."""

    offer_us: float
    serve_us: float
    reject_us: float

    @property
    def call_s(self) -> float:
        """s: the cost of a served call: INVITE, 180, 200, ACK, BYE and 200."""
        return 6 * (self.offer_us + self.serve_us) / 1e6

    @property
    def rejection_s(self) -> float:
        """r: the cost of a rejected call: its INVITE, and the ACK to the 503."""
        return (2 * self.offer_us + self.reject_us) / 1e6

    @property
    def capacity_cps(self) -> float:
        """C: the calls/s that fill the processor."""
        return 1 / self.call_s

    @property
    def ratio(self) -> float:
        """r/s."""
        return self.rejection_s / self.call_s

    def tables(self) -> str:
        """Returns the tables of the configuration."""
        return f"""
[emulate]
offer_us = {self.offer_us}
serve_us = {self.serve_us}
reject_us = {self.reject_us}
"""


@dataclass(frozen=True)
class Scenario:
    """The server and the laws in a file of `scenarios`."""

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
    """Returns the greatest possible goodput at `multiple` of the capacity, as a part of the capacity.

    `ratio` is r/s: the cost of rejecting a call divided by the cost of serving one.
    """
    if multiple <= 1:
        return multiple
    if ratio >= 1:
        return 0.0
    return min(max((1 - multiple * ratio) / (1 - ratio), 0.0), 1.0)
