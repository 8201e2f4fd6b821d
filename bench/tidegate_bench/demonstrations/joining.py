"""A sender that starts in an overload gets feedback: within 2 s it holds back its surplus

A receiver whose processor is emulated (72 calls/s) gives feedback by `loss` (RFC 7339). A caller that knows nothing of
feedback sends it three times its capacity. Three seconds later a Tidegate starts in front of the receiver, and gets as
many calls from its first moment on. It learns from its health checks that the receiver gives feedback, while calls come
between each check and its response, and most responses are late. Each round starts the Tidegate several times, each
time with a new receiver. Feedback has begun when the Tidegate rejects the first call because of it.
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
from tidegate_bench.tidegate import built

LOAD = 3.0
ALONE_S = 3.0
# The sender checks the health of the receiver every half second, and two checks may be late or lost.
BEGUN_MAX_S = 2.0
# From the start of the sender to the end of the run.
BESIDE_S = 15.0
STARTS = 3


def one(show: "Show", round_: int, start: int) -> dict[str, Any]:
    with Stage() as stage:
        _, receiver = feedback.receiver(stage, show.profile, feedback.given())

        def calls(name: str, target: str, seconds: float, seed: int) -> Process:
            offered = Load(LOAD * CAPACITY_CPS, 0.0, seconds, seed)
            options = words(offered, stage.directory / f"{name}.json")
            return stage.start(name, [built("tidegate", show.profile), "load", "uac", target, *options])

        seed = 2 * (round_ * STARTS + start)
        calls("ignorant", receiver.address, ALONE_S + BESIDE_S, seed)
        time.sleep(ALONE_S)
        sender = feedback.sender(stage, receiver, show.profile, mode="transaction", health=HEALTH)
        began, begun_s = time.monotonic(), None
        calls("caller", sender.address, BESIDE_S, seed + 1)
        while time.monotonic() < began + BESIDE_S:
            if begun_s is None and sender.metrics().total("work_rejected", reason="feedback"):
                begun_s = round(time.monotonic() - began, 2)
            time.sleep(0.1)
        shown = sender.metrics()
        show.text(f"{round_}-{start}.sender.metrics", shown.text)
        held, sent = (shown.total(name) for name in ("feedback_held", "feedback_sent"))
        stage.kill()
    return {"round": round_, "start": start, "begun_s": begun_s, "held_back": round(held / max(held + sent, 1), 3)}


class Show(Demonstration):
    PROFILE = "release"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--starts", type=int, default=STARTS, help="starts of each round (default %(default)s)")

    def run(self) -> Results:
        rows = []
        for round_ in self.rounds:
            for start in range(self.options.starts):
                row = one(self, round_, start)
                print(f"round {round_}: feedback began after {row['begun_s']} s", flush=True)
                rows.append(row)
        self.rows("runs", rows)
        begun = [row for row in rows if row["begun_s"] is not None and row["begun_s"] <= BEGUN_MAX_S]
        table.show_spreads(begun, {"begun_s": 2, "held_back": 3})
        self.expect(
            len(begun) == len(rows), f"feedback began within {BEGUN_MAX_S:g} s in {len(begun)} of {len(rows)} starts"
        )
        return {"runs": rows}
