"""A fresh clone of the last commit: `make demo`, `make run`, Ctrl-C and `make test` work

Nothing is built before. The clone shares with this checkout only the files that cargo has downloaded. Every process
must end with the command that started it. The times of the commands are printed.
"""

import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Process, Stage
from tidegate_bench.record import ROOT, Record

BUILD_MAX_S = 1800
DEMO_MAX_S = 120
TEST_MAX_S = 3600
SAMPLE_S = 10


def make(stage: Stage, clone: Path, target: str) -> Process:
    # The clone has its own target directory, whatever this shell uses.
    return stage.start(target, ["env", "-u", "CARGO_TARGET_DIR", "make", "-C", str(clone), target])


def run_demo(record: Record, stage: Stage, clone: Path) -> dict[str, float]:
    begun = time.monotonic()
    demo = make(stage, clone, "demo")
    ended = demo.wait(BUILD_MAX_S + DEMO_MAX_S)
    took_s = time.monotonic() - begun
    said = demo.output.read_text()
    record.expect(
        ended and demo.exit_status == 0 and said.count(" x protected") == 4,
        f"make demo shows both servers after {took_s:.0f} s, building included",
    )
    record.expect(not demo.pids(), "make demo leaves no process behind")
    record.keep(demo.output)
    print(said[said.find("Goodput as") :])
    return {"demo_s": round(took_s, 1)}


def run_sample(record: Record, stage: Stage, clone: Path) -> dict[str, float]:
    begun = time.monotonic()
    sample = make(stage, clone, "run")
    while not (found := re.search(r"http://\S+/metrics", sample.output.read_text())):
        if not sample.running() or time.monotonic() > begun + BUILD_MAX_S:
            record.expect(False, f"make run comes up:\n{sample.tail(40)}")
            return {}
        time.sleep(0.2)
    up_s = time.monotonic() - begun
    record.expect(True, f"make run is ready after {up_s:.0f} s")

    time.sleep(SAMPLE_S)
    record.expect(sample.running(), f"make run still runs {SAMPLE_S} s later")
    with urllib.request.urlopen(found.group(), timeout=5) as answer:
        metrics = answer.read().decode()
    (record.directory / "run.metrics").write_text(metrics)
    record.expect("tidegate_" in metrics, f"{found.group()} answers")

    asked = time.monotonic()
    # Send the signal to the foreground process group, as a terminal does on Ctrl-C.
    os.killpg(sample.pid, signal.SIGINT)
    ended = sample.wait(15)
    end_s = time.monotonic() - asked
    record.expect(ended and not sample.pids(), f"Ctrl-C ends all processes, after {end_s:.1f} s")
    record.keep(sample.output)
    print(sample.tail(40))
    return {"run_up_s": round(up_s, 1), "run_end_s": round(end_s, 1)}


def run_tests(record: Record, stage: Stage, clone: Path) -> dict[str, float]:
    begun = time.monotonic()
    tests = make(stage, clone, "test")
    ended = tests.wait(TEST_MAX_S)
    took_s = time.monotonic() - begun
    results = re.findall(r"^test result: (\w+)\. (\d+) passed", tests.output.read_text(), re.MULTILINE)
    passed = sum(int(count) for _, count in results)
    record.expect(
        ended and tests.exit_status == 0 and passed > 0 and all(word == "ok" for word, _ in results),
        f"make test passes {passed} tests after {took_s:.0f} s (status {tests.exit_status})",
    )
    record.expect(not tests.pids(), "make test leaves no process behind")
    record.keep(tests.output)
    print(tests.tail())
    return {"test_s": round(took_s, 1), "tests": passed}


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        # A shell makes its background processes ignore Ctrl-C, and their children inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with Stage() as stage:
            clone = stage.directory / "clone"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
            times = run_demo(self, stage, clone)
            times |= run_sample(self, stage, clone)
            times |= run_tests(self, stage, clone)
            self.expect(
                not subprocess.run(
                    ["git", "-C", str(clone), "status", "--porcelain"], capture_output=True, check=False
                ).stdout,
                "the clone is as clean as before",
            )
        return {"times": times}
