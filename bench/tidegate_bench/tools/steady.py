"""CPU per call, wakes and added delay in steady state: Tidegate, a bare relay and Kamailio.

Each run is: caller -> element -> callee, on loopback, with fresh processes. Calls are offered at one rate, first for a
warm-up of 40 s. This is longer than Timers D, H, J and K of RFC 3261, so that as many transactions end as begin. Only
then the measurement starts. The elements take turns, and ratios are taken within a round.

  transaction      Tidegate with its defaults, which include transactions
  stateless        Tidegate without transactions
  relay            datagrams in, datagrams out: the least that any element can do
  forward          Kamailio with forward(), without transactions; one worker, fast allocator (-x fm)
  t_relay          Kamailio with t_relay(), with transactions; also one worker and the fast allocator
  forward_debian   forward with the allocator of Debian's package, which checks each block
  t_relay_debian   t_relay with that allocator
  direct           no element at all, for the delay

With `--transport tcp,tls` the callers come over TCP and TLS, to `transaction`, `stateless` and Kamailio with
transactions. The callee stays at UDP. `persistent`: 100 users have a connection each, which stays open. `each`: each
call has a connection, which is opened and closed in the measured time. Kamailio has one worker for them, as for UDP,
beside the process that accepts connections. Over TLS both have the same certificate.

A call is INVITE, 180, 200, ACK, BYE, 200. The delay is from the INVITE to its 200, and includes the callee.
With --generator sipp the caller is SIPp, whose clock has steps of some milliseconds.
"""

import argparse
from dataclasses import dataclass
from functools import partial

from tidegate_bench import load, sipp_load, table, tidegate
from tidegate_bench.access import MODES, TRANSPORTS, UDP, Access, Certificate
from tidegate_bench.elements import BASELINE, OVER_STREAMS, elements
from tidegate_bench.load import Load, Outcome
from tidegate_bench.process import Stage
from tidegate_bench.record import Record
from tidegate_bench.sockets import LOCALHOST
from tidegate_bench.table import Column

# A call is kept for 32 s after its end. One source can use half of the table. So 30,000 calls/s need 1,920,000 entries.
ROOM = "calls_max = 4_000_000\n"
# The name for runs without any element.
DIRECT = "direct"
ELEMENTS = (*elements(), DIRECT)

OFFERS: dict[str, load.Offer] = {"tidegate": partial(load.offer, profile="release"), "sipp": sipp_load.offer}


@dataclass(frozen=True)
class Run:
    """One element under one load, once."""

    rate: int
    round: int
    by: Access
    element: str
    outcome: Outcome
    times: float | None
    """CPU time per call as a multiple of that of the baseline over UDP in the same round, if it ran before."""


def measure(name: str, by: Access, options: argparse.Namespace, rate: int, seed: int) -> Outcome:
    offered = Load(rate, options.warm_up, options.seconds, seed)
    with Stage() as stage:
        callee = tidegate.callee(stage, "uas", "release")
        element, port = callee.process, callee.port
        certificate = Certificate.make(stage.directory) if by.transport == "tls" else None
        if name != DIRECT:
            element, port = elements(ROOM + options.server, by, certificate)[name](stage, callee.port)
        offer = OFFERS[options.generator]
        return offer(stage, element, f"{LOCALHOST}:{port}", callee, offered, options=by.options(certificate))


COLUMNS = [
    Column("in time", lambda run: run.outcome.in_time, 4, "min"),
    Column("CPU µs a call", lambda run: run.outcome.steady_us_per_call, 1, "spread"),
    Column(f"times the {BASELINE}", lambda run: run.times, 2, "spread"),
    Column("wakes/s", lambda run: run.outcome.usage.wakes_per_s),
    Column("p50 ms", lambda run: run.outcome.p50_ms, 2),
    Column("p99 ms", lambda run: run.outcome.p99_ms, 2),
    Column("cores: element", lambda run: run.outcome.usage.element, 2),
    Column("caller", lambda run: run.outcome.usage.caller, 2),
    Column("callee", lambda run: run.outcome.usage.callee, 2),
    Column("drops: element", lambda run: run.outcome.usage.element_drops, 0, "sum"),
    Column("generator", lambda run: run.outcome.usage.drops, 0, "sum"),
    Column("connections", lambda run: run.outcome.opened),
]


def row(run: Run) -> dict[str, object]:
    head = {"rate_cps": run.rate, "round": run.round, "transport": run.by.transport, "connections": run.by.mode}
    head |= {"element": run.element, "in_time": run.outcome.in_time}
    return head | {"cpu_us_per_call": run.outcome.steady_us_per_call, **run.outcome.row()}


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--elements", default=",".join(ELEMENTS), help="programs to measure, separated by commas (default %(default)s)"
    )
    parser.add_argument(
        "--generator", choices=OFFERS, default="tidegate", help="program that makes the calls (default %(default)s)"
    )
    parser.add_argument("--transport", default="udp", help=f"any of {','.join(TRANSPORTS)} (default %(default)s)")
    parser.add_argument(
        "--connections",
        default=",".join(MODES),
        help="use of connections over TCP and TLS, separated by commas (default %(default)s)",
    )
    parser.add_argument(
        "--rates", default="500,2000,10000", help="offered rates in calls/s, separated by commas (default %(default)s)"
    )
    parser.add_argument("--warm-up", type=float, default=40, help="duration of the warm-up in s (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=15, help="measured time in s (default %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="number of rounds; a spread needs at least 3 (default %(default)s)"
    )
    parser.add_argument(
        "--server", default="", help="additional keys for the table [server] of Tidegate's configuration"
    )
    options = parser.parse_args(arguments)
    for key, known in (("elements", ELEMENTS), ("transport", TRANSPORTS), ("connections", MODES)):
        setattr(options, key, getattr(options, key).split(","))
        for name in getattr(options, key):
            if name not in known:
                parser.error(f"--{key}: no {name}: there are {', '.join(known)}")
    if options.transport != ["udp"] and options.generator != "tidegate":
        parser.error("over TCP and TLS the generator must be tidegate")
    if without := set(options.transport) - {by.transport for by, _ in pairs(options)}:
        listed = ",".join(options.elements)
        parser.error(f"--elements: callers over {','.join(sorted(without))} can reach none of {listed}")
    options.rates = [int(rate) for rate in options.rates.split(",")]
    if min([options.seconds, options.rounds, *options.rates]) < 1 or options.warm_up < 0:
        parser.error("rates, seconds and rounds must be at least 1, the warm-up at least 0")
    return options


def pairs(options: argparse.Namespace) -> list[tuple[Access, str]]:
    """Returns each way to reach elements, with each element that can be reached in this way."""
    ways = Access.all(options.transport, options.connections)
    return [(by, name) for by in ways for name in options.elements if not by.over_streams or name in OVER_STREAMS]


def at_rate(options: argparse.Namespace, rate: int) -> list[Run]:
    runs = []
    print(f"\nat {rate:,} calls/s: {options.warm_up:g} s, then {options.seconds:g} s measured")
    for round_ in range(1, options.rounds + 1):
        outcomes = {(by, name): measure(name, by, options, rate, 100 * rate + round_) for by, name in pairs(options)}
        base = outcomes[UDP, BASELINE].steady_us_per_call if (UDP, BASELINE) in outcomes else None
        for (by, name), outcome in outcomes.items():
            times = outcome.steady_us_per_call / base if base and name != DIRECT else None
            runs.append(Run(rate, round_, by, name, outcome, times))
        print(f"round {round_} of {options.rounds} done", flush=True)
    return runs


def main(arguments: list[str]) -> int:
    options = parsed(arguments)
    record = Record("bench", "steady")
    runs: list[Run] = []
    for rate in options.rates:
        found = at_rate(options, rate)
        table.show(found, COLUMNS, line=lambda run: run.element, block=lambda run: run.by)
        missed = [run for run in found if run.outcome.in_time <= 0.999 or run.outcome.generator_failed]
        but = ", but not " + ", ".join(f"{run.element} over {run.by}" for run in missed) if missed else ""
        told = f"at {rate:,} calls/s every run carried its load, and the generator lost nothing"
        record.expect(not missed, f"{told}{but}")
        runs += found
    return record.finish(options=vars(options), runs=record.rows("runs", map(row, runs)))
