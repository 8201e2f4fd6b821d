"""Tests of the tables of demonstrations, with values that a person can check."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

from tests.scratch import Scratch
from tidegate_bench import access, curve, load, prediction, table
from tidegate_bench.curve import Point
from tidegate_bench.demonstrations import disposal, laws, loss, registrations, tiers
from tidegate_bench.load import Outcome, Usage
from tidegate_bench.overload import Variant
from tidegate_bench.registrations import Registrations
from tidegate_bench.table import Column
from tidegate_bench.tools import steady

USAGE = Usage(2.0, 0.8, 0.1, 0.2, drops=3, element_drops=9, steady_cpu_s=1.0, steady_s=2.0, wakes_per_s=50.0)


def outcome(goodput: float) -> Outcome:
    return Outcome(1000, 200.0, goodput, 30.0, 0.5, 1.25, 9.75, too_slow=False, usage=USAGE)


class ColumnsTest(Scratch):
    def cells(self, items: list[Any], columns: list[Column]) -> dict[str, str]:
        return {column.title: " ".join(column.cell(items).split()) for column in columns}

    def test_curve(self) -> None:
        points = [
            Point(n, "tidegate", Variant("pi"), 2.0, 100.0, 0.1, outcome(g)) for n, g in ((1, 80), (2, 90), (3, 70))
        ]
        curve.show(points)
        self.assertIn("tidegate pi (arrival, class)", self.printed)
        cells = self.cells(points, [curve.GOODPUT, *curve.BOUND, *curve.OUTCOME, curve.ELEMENT_DROPS])
        self.assertEqual(cells["goodput/C"], "0.700 0.800 0.900")
        self.assertEqual((cells["bound"], cells["of bound"], cells["generator"]), ("0.89", "0.90", "0.30"))
        self.assertEqual((cells["drops: own"], cells["element"], cells["too slow"]), ("9", "27", "0"))

    def test_disposal(self) -> None:
        trials = [disposal.Trial(1, 2.0, 100.0, outcome(80), "kernel", 500.0, 50.0, filtered=4, sent=10, in_trains=5)]
        cells = self.cells(trials, disposal.COLUMNS)
        self.assertEqual((cells["offered"], cells["r/s"], cells["bound"]), ("2.00", "0.100", "0.89"))
        self.assertEqual((cells["in trains"], cells["lost"], cells["filtered"]), ("0.50", "5", "4"))
        self.assertEqual(trials[0].row()["goodput_cps"], 80)

    def test_tiers(self) -> None:
        points = [tiers.Point(1, 1.2, 100.0, outcome(80), "adaptive", stateful=0.25)]
        cells = self.cells(points, tiers.COLUMNS)
        self.assertEqual((cells["goodput/C"], cells["stateful"]), ("0.800 0.800 0.800", "0.250"))
        self.assertEqual(cells["µs a call"], "2000.0")
        row = points[0].row()
        self.assertEqual((row["mode"], row["goodput"], row["us_per_call"]), ("adaptive", 0.8, 2000.0))

    def test_laws(self) -> None:
        measured = {"min": 0.7, "median": 0.8, "max": 0.9}
        row = {"bound": 0.89, "goodput": measured, "retransmission_ratio": measured, "p50_ms": None, "p99_ms": None}
        cells = [column.cell([{**row, "rejected": measured}]).strip() for column in laws.COLUMNS]
        self.assertEqual(cells[:4], ["0.89", "0.70", "0.80", "0.90"])
        self.assertEqual(cells[7:10], ["-", "-", "-"])

    def test_loss(self) -> None:
        row = {"calls": 200, "completed": 199, "by_caller": 20, "by_tidegate": 40, "by_callee": 10}
        cells = self.cells([{**row, "set_up_p50_ms": 106.0, "set_up_p99_ms": None}], loss.COLUMNS)
        self.assertEqual(cells["completed, %"], "99.50 99.50 99.50")
        self.assertEqual(
            [cells[by] for by in ("again by caller", "again by tidegate", "again by callee", "p99")],
            ["0.10", "0.20", "0.05", "-"],
        )

    def test_registrations(self) -> None:
        over_tcp = replace(outcome(80), opened=7, own_losses=2)
        result = Registrations(over_tcp, 1.5, memory_mib=9.0, memory_before_mib=4.0)
        trials = [registrations.Trial(1, "tidegate", "each", 2.0, 100.0, result)]
        cells = self.cells(trials, registrations.RESPONSE)
        self.assertEqual((cells["µs CPU each"], cells["in time"]), ("2500.0 2500.0 2500.0", "0.400"))
        self.assertEqual((cells["connections"], cells["generator losses"]), ("7", "5"))
        self.assertEqual(self.cells(trials, registrations.BEYOND)["kept"], "0.80 0.80 0.80")
        self.assertEqual((trials[0].row()["kept"], trials[0].row()["us_each"]), (0.8, 2500.0))

    def test_registrations_are_judged_by_processor_time_and_memory(self) -> None:
        def trial(element: str, cpu_s: float, mib: float, multiple: float | None = None) -> registrations.Trial:
            of = replace(outcome(200), usage=replace(USAGE, steady_cpu_s=cpu_s))
            return registrations.Trial(1, element, "udp", multiple, 200.0, Registrations(of, 1.0, mib, 4.0))

        show = Mock()
        show.options.elements, show.options.modes = ["echo", "tidegate"], ["udp"]

        def judged(judge: Callable[..., None], trials: list[registrations.Trial], word: str) -> list[bool]:
            show.expect.reset_mock()
            judge(show, trials)
            return [call.args[0] for call in show.expect.call_args_list if word in call.args[1]]

        # In 2 s the echo server uses .1 s, which is .05 of a core.
        for cpu_s, held in ((0.4, True), (0.5, False)):
            trials = [trial("echo", 0.1, 5), trial("tidegate", cpu_s, 5)]
            self.assertEqual(judged(registrations.Show._judge_response, trials, "of a core more"), [held])
        for mib, held in ((190, True), (191, False)):
            trials = [trial("tidegate", 0.4, mib, multiple) for multiple in registrations.MULTIPLES]
            self.assertEqual(judged(registrations.Show._judge_beyond, trials, "at its limit"), [held])

    def queue_trials(self, goodput: float) -> list[registrations.QueueTrial]:
        """Returns the trials of two rounds with this goodput. The limit is 100/s. The second round has to find it."""
        result = Registrations(outcome(goodput), 1.0, memory_mib=9.0, memory_before_mib=4.0)
        self.replace("tidegate_bench.demonstrations.registrations.offer", Mock(return_value=result))
        show = Mock(rounds=range(1, 3), profile="release")
        show.options.elements, show.options.modes = ["tidegate"], ["udp", "each"]
        show._find = Mock(return_value=100.0)
        trials = registrations.Show._queue(show, {("tidegate", "udp"): [100.0]})
        show._find.assert_called_once_with("tidegate", "udp", [100.0], 2)
        show._judge_queue.assert_called_once_with(trials)
        return trials

    def test_registrations_with_limited_queues(self) -> None:
        trials = self.queue_trials(80)
        cases = {(one.control, one.queue_max, one.multiple, one.mode) for one in trials}
        self.assertEqual((len(trials), len(cases)), (2 * 2 * 4 * 3, 2 * 4 * 3))
        self.assertEqual({one.mode for one in trials}, {"udp"})
        self.assertIn("udp, 2.0 times the limit, queue only", self.printed)
        cells = self.cells(trials[:2], registrations.QUEUE)
        self.assertEqual((cells["kept"], cells["element"], cells["rejected/s"]), ("0.80 0.80 0.80", "18", "30"))
        row = trials[0].row()
        self.assertEqual((row["control"], row["queue_max"], row["kept"]), ("queue only", 256, 0.8))

    def test_registrations_with_limited_queues_are_judged_with_the_default_control(self) -> None:
        # Goodput must be at least .6 of the limit at 2 times the limit, and .4 at 3 times.
        for goodput, held in ((60, {True}), (59, {True, False}), (39, {False})):
            show = Mock()
            registrations.Show._judge_queue(show, self.queue_trials(goodput))
            told = [call.args for call in show.expect.call_args_list if "is kept" in call.args[1]]
            self.assertEqual((len(told), {args[0] for args in told}), (2 * 4, held), goodput)

    def test_losses_by_the_report_are_those_of_calls_datagrams_and_connections(self) -> None:
        report: dict[str, Any] = {"stats": {"not_begun": 1}, "usage": {"send_drops": 2, "streams": None}}
        self.assertEqual(load.own_losses(report), 3)
        report["usage"]["streams"] = {"excess": 4, "overflow": 8}
        self.assertEqual(load.own_losses(report), 15)

    def test_run_without_calls_has_no_delay(self) -> None:
        delays = {"count": 0, "p50_us": 0, "p99_us": 0}
        self.assertIsNone(load.delay_ms(delays, "p99"))
        self.assertEqual(load.delay_ms({**delays, "count": 3, "p99_us": 1500}, "p99"), 1.5)
        points = [
            Point(1, "tidegate", Variant("none"), 5.0, 100.0, 0.1, replace(outcome(0), p50_ms=None, p99_ms=ms))
            for ms in (None, 80.0)
        ]
        cells = self.cells(points, curve.OUTCOME)
        self.assertEqual((cells["p50 ms"], cells["p99 ms"]), ("-", "80.0"))

    def test_prediction(self) -> None:
        def round_(capacity: float, predicted: float, measured: float) -> prediction.Round:
            row = {"variant": "pi", "load": 2.0, "goodput": {"median": predicted}, "p99_ms": None}
            return prediction.Round({"capacity_cps": capacity, "rows": [row]}, [outcome(measured)])

        # The machine was twice as fast in the second round as in the first one. This is no error of a prediction.
        [row] = prediction.compare([round_(100.0, 0.8, 70), round_(200.0, 0.8, 160), round_(100.0, 0.8, 90)])
        self.assertEqual((row["real_goodput_minimum"], row["error_minimum"], row["error_median"]), (0.7, -0.1, 0.0))
        cells = self.cells([row], prediction.COLUMNS)
        self.assertEqual((cells["goodput/C: sim"], cells["p99 ms: sim"], cells["drops: element"]), ("0.800", "-", "27"))

    def test_real_run_without_calls_has_no_delay_in_a_prediction(self) -> None:
        def compared(*p99_ms: float | None) -> dict[str, Any]:
            row = {"variant": "none", "load": 5.0, "goodput": {"median": 0.0}, "p99_ms": {"median": 500.0}}
            runs = [replace(outcome(0.0), p99_ms=each) for each in p99_ms]
            results = {"capacity_cps": 100.0, "rows": [row]}
            return prediction.compare([prediction.Round(results, [run]) for run in runs])[0]

        self.assertEqual(compared(None, None, 700.0)["real_p99_ms_median"], 700.0)
        self.assertIsNone(compared(None, None, None)["real_p99_ms_median"])
        record = Mock()
        prediction.judge(record, [compared(None, None, None)])
        self.assertEqual([call.args[0] for call in record.expect.call_args_list], [True, False])

    def test_a_prediction_is_judged_at_each_load(self) -> None:
        def row(error: float, predicted: float | None, measured: float | None) -> dict[str, float | None]:
            return {"error_median": error, "sim_p99_ms": predicted, "real_p99_ms_median": measured}

        def judged(*rows: dict[str, float | None]) -> list[bool]:
            record = Mock()
            prediction.judge(record, rows, "pi: ")
            return [call.args[0] for call in record.expect.call_args_list]

        self.assertEqual(judged(row(0.05, 129, 100), row(-0.05, 100, 129)), [True, True])
        self.assertEqual(judged(row(0.01, 10, 10), row(-0.06, 10, 10)), [False, True])
        self.assertEqual(judged(row(0.0, 10, 10), row(0.0, 131, 100)), [True, False])
        # The generator alone takes a millisecond.
        self.assertEqual(judged(row(0.0, 0, 1.9)), [True, True])
        for missing in (0.0, math.nan, None):
            self.assertEqual(judged(row(0.0, missing, 20)), [True, False])
        # If neither side sets up a call, there is nothing to compare.
        self.assertEqual(judged(row(0.0, 20, None)), [True, False])
        self.assertEqual(judged(row(0.0, None, None)), [True, True])

    def test_steady(self) -> None:
        runs = [steady.Run(2000, 1, access.UDP, "transaction", outcome(199.0), times=1.5)]
        cells = self.cells(runs, steady.COLUMNS)
        self.assertEqual((cells["in time"], cells["CPU µs a call"]), ("0.9950", "2500.0 2500.0 2500.0"))
        self.assertEqual(steady.row(runs[0])["wakes_per_s"], 50.0)

    def test_heads_are_over_their_cells(self) -> None:
        listed = [*disposal.COLUMNS, *tiers.COLUMNS, *laws.COLUMNS, *loss.COLUMNS, *prediction.COLUMNS, *steady.COLUMNS]
        self.assertTrue(all(column.summary in ("spread", *table._SUMMARIES) for column in listed))
