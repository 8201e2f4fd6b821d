"""A sender that starts in an overload gets feedback: within 2 s it holds back most of its surplus

A receiver whose processor is emulated (72 calls/s) gives feedback by `loss` (RFC 7339). A caller that knows nothing of
feedback sends it three times its capacity. Three seconds later a Tidegate starts in front of the receiver, and a caller
sends it as many calls. It learns from its health checks that the receiver gives feedback, while calls come between each
check and its response, and most responses are late. Each round starts the Tidegate several times, each time with a new
receiver. Feedback has begun when the Tidegate rejects the first call because of it. From 2 s after its start to the end
it must reject at least .6 of its calls because of feedback.
"""

import argparse
import time
from typing import Any

from tidegate_bench import feedback, table
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.demonstrations.receiver import HEALTH
from tidegate_bench.feedback import CAPACITY_CPS
from tidegate_bench.load import Load, words
from tidegate_bench.process import Process, Stage
from tidegate_bench.tidegate import Edge, built

LOAD = 3.0
ALONE_S = 3.0
# The sender checks the health of the receiver every half second, and two checks may be late or lost.
BEGUN_MAX_S = 2.0
# The sender gets 3 times the capacity, so its surplus is at least two thirds. Before the feedback begins, and while its
# limit changes, it may send more.
HELD_BACK_MIN = 0.6
# From the start of the sender to the end of the run.
BESIDE_S = 12.0
STARTS = 3


def counts(sender: Edge) -> tuple[int, int]:
    """Returns the number of calls of a sender so far, and of those that it rejected because of feedback."""
    shown = sender.metrics()
    return shown.total("work_offered", bucket="session"), shown.total("work_rejected", reason="feedback")


def one(show: "Show", round_: int, start: int) -> dict[str, Any]:
    seed = 2 * (round_ * show.options.starts + start)
    with Stage() as stage:
        _, receiver = feedback.receiver(stage, show.profile, feedback.given())

        def calls(name: str, target: Edge, seconds: float, seed: int) -> Process:
            offered = Load(LOAD * CAPACITY_CPS, 0.0, seconds, seed)
            options = words(offered, stage.directory / f"{name}.json")
            return stage.start(name, [built("tidegate", show.profile), "load", "uac", target.address, *options])

        callers = [calls("ignorant", receiver, ALONE_S + 2 * BESIDE_S, seed)]
        time.sleep(ALONE_S)
        overloaded = receiver.metrics().total("work_rejected") > 0
        began, begun_s = time.monotonic(), None
        sender = feedback.sender(stage, receiver, show.profile, mode="transaction", health=HEALTH)
        callers.append(calls("caller", sender, 2 * BESIDE_S, seed + 1))
        while begun_s is None and time.monotonic() < began + BEGUN_MAX_S:
            if counts(sender)[1]:
                begun_s = round(time.monotonic() - began, 2)
            time.sleep(0.05)
        time.sleep(max(0.0, began + BEGUN_MAX_S - time.monotonic()))
        earlier = counts(sender)
        time.sleep(max(0.0, began + BESIDE_S - time.monotonic()))
        offered, held = (after - before for after, before in zip(counts(sender), earlier, strict=True))
        for process in callers:
            process.require_running()
        for name, edge in (("sender", sender), ("receiver", receiver)):
            show.text(f"{round_}-{start}.{name}.metrics", edge.metrics().text)
        stage.kill()
    held_back = round(held / max(offered, 1), 3)
    return {"round": round_, "start": start, "overloaded": overloaded, "begun_s": begun_s, "held_back": held_back}


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--starts", type=int, default=STARTS, help="starts of each round (default %(default)s)")

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        if options.starts < 1:
            raise SystemExit("--starts must be at least 1")

    def run(self) -> Results:
        rows = []
        for round_ in self.rounds:
            for start in range(self.options.starts):
                row = one(self, round_, start)
                begun = f"after {row['begun_s']} s" if row["begun_s"] else f"not within {BEGUN_MAX_S:g} s"
                print(
                    f"round {round_}: feedback began {begun}, {row['held_back']} of the calls were held back",
                    flush=True,
                )
                rows.append(row)
        self.rows("runs", rows)
        table.show_spreads(rows, {"begun_s": 2, "held_back": 3})
        for told, held in (
            ("the receiver was overloaded before the start", [row["overloaded"] for row in rows]),
            (f"feedback began within {BEGUN_MAX_S:g} s", [row["begun_s"] is not None for row in rows]),
            (
                f"at least {HELD_BACK_MIN} of the calls were held back",
                [row["held_back"] >= HELD_BACK_MIN for row in rows],
            ),
        ):
            self.expect(all(held), f"{told} in {sum(held)} of {len(held)} starts")
        return {"runs": rows}
