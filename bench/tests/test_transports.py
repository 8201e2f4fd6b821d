"""Tests of the ways to reach an element, and of the two commands that compare them."""

import argparse
import contextlib
import io
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from tests.scratch import Scratch
from tests.test_columns import outcome
from tidegate_bench import access, elements, kamailio, peak
from tidegate_bench.access import UDP, Access, Certificate
from tidegate_bench.demonstrations import transports
from tidegate_bench.load import Load, Outcome
from tidegate_bench.tools import steady

TCP = Access("tcp", "persistent")
CERTIFICATE = Certificate(Path("/c/own.pem"), Path("/c/own.key"))


class AccessTest(Scratch):
    def test_udp_has_no_connections(self) -> None:
        ways = Access.all(["tls", "udp"], ["persistent", "each"])
        self.assertEqual([str(by) for by in ways], ["udp", "tls persistent", "tls each"])
        self.assertEqual(UDP.options(None), [])

    def test_each_way_has_its_options(self) -> None:
        self.assertEqual(TCP.options(CERTIFICATE), ["--transport", "tcp", "--connections", "100", "--callers", "100"])
        each = Access("tls", "each").options(CERTIFICATE)
        self.assertEqual(each, ["--transport", "tls", "--ca", "/c/own.pem", "--connections", "each"])

    def test_only_a_listener_over_tls_has_the_certificate(self) -> None:
        for transport, key in (("tcp", None), ("tls", "/c/own.key")):
            [listen] = tomllib.loads(access.listener(transport, 5060, CERTIFICATE))["listen"]
            self.assertEqual((listen["transport"], listen["address"]), (transport, "127.0.0.1:5060"))
            self.assertEqual(listen.get("private_key"), key)

    def test_certificate_is_its_own_authority(self) -> None:
        made = Certificate.make(self.folder)
        self.assertIn("BEGIN CERTIFICATE", made.file.read_text())
        self.assertIn("PRIVATE KEY", made.key.read_text())

    def test_kamailio_listens_for_tls_instead_of_tcp(self) -> None:
        defines = {"TCP_MAX": "9", "TLS_KEY": '"k"'}
        words = kamailio.command(Mock(directory=self.folder), Path("k.cfg"), "10.0.0.1", 5070, defines)
        self.assertIn("tls:10.0.0.1:5070", words)
        self.assertNotIn("tcp:10.0.0.1:5070", words)
        self.assertIn("--atexit=no", words)

    def test_one_source_may_open_all_connections(self) -> None:
        connections = tomllib.loads(access.ROOM)["connections"]
        self.assertEqual(set(connections.values()), {access.CONNECTIONS_MAX})
        self.assertEqual(set(connections), {"accepted_max", "per_source_max"})

    def test_elements_over_streams_are_those_with_connections(self) -> None:
        self.assertEqual(set(elements.elements(by=TCP)), set(elements.OVER_STREAMS))
        self.assertIn("relay", elements.elements())


class SteadyTest(Scratch):
    def parsed(self, *arguments: str) -> argparse.Namespace:
        return steady.parsed(list(arguments))

    def test_without_options_it_is_udp(self) -> None:
        self.assertEqual({by for by, _ in steady.pairs(self.parsed())}, {UDP})
        self.assertEqual(len(steady.pairs(self.parsed())), len(steady.ELEMENTS))

    def test_each_way_has_the_elements_that_can_be_reached(self) -> None:
        options = self.parsed("--transport", "udp,tcp", "--elements", "relay,t_relay", "--connections", "each")
        found = [(str(by), name) for by, name in steady.pairs(options)]
        self.assertEqual(found, [("udp", "relay"), ("udp", "t_relay"), ("tcp each", "t_relay")])

    def test_unknown_and_impossible_choices_end_it(self) -> None:
        wrong = [["--transport", "sctp"], ["--connections", "some"], ["--transport", "tcp", "--generator", "sipp"]]
        # The first of these two choices would leave no run at all, and the second no run over TCP.
        wrong += [["--transport", "tcp", "--elements", "relay,direct"]]
        wrong += [["--transport", "udp,tcp", "--elements", "relay"]]
        for arguments in wrong:
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                self.parsed(*arguments)


class PeakTest(Scratch):
    def test_less_effort_makes_fewer_runs(self) -> None:
        runs: list[Load] = []

        def offer(load: Load) -> Outcome:
            runs.append(load)
            return replace(outcome(min(load.rate_cps, 1000.0)), offered_cps=load.rate_cps)

        found = peak.climb(offer, 900.0, 1, peak.QUICK)[0]
        quick = len(runs)
        self.assertTrue(880.0 <= found <= 1011.0, found)
        peak.climb(offer, 900.0, 1)
        self.assertLess(quick, len(runs) - quick)

    def carried(self, *outcomes: Outcome) -> tuple[Outcome | None, int]:
        """Returns the outcome if the load was carried, and the number of runs."""
        runs = iter(outcomes)
        found = peak.carried(lambda _: next(runs), Load(100.0, 0.5, 1.0, 1))
        return found, len(outcomes) - len(list(runs))

    def test_run_is_repeated_if_the_generator_failed(self) -> None:
        def run(in_time: float, drops: int, **changed: Any) -> Outcome:
            usage = replace(outcome(0.0).usage, drops=drops)
            return replace(outcome(100.0 * in_time), offered_cps=100.0, usage=usage, **changed)

        clean, late = run(1.0, 0), run(0.9, 0)
        for failed in (run(0.9, 50), run(0.9, 0, own_losses=1), run(1.0, 0, too_slow=True)):
            self.assertEqual(self.carried(failed, failed, clean), (clean, 3))
            self.assertEqual(self.carried(failed, failed, failed), (None, 3))
            self.assertEqual(self.carried(failed, late), (None, 2))
        # All calls were in time in spite of the lost messages.
        self.assertEqual(self.carried(run(1.0, 50), clean), (run(1.0, 50), 1))
        self.assertEqual(self.carried(late, clean), (None, 1))


def trial(by: Access, multiple: float, goodput: float) -> transports.Trial:
    result = replace(outcome(100 * goodput), offered_cps=100 * multiple)
    ratio = 0.1 if by.over_streams else 0.0
    return transports.Trial(1, multiple, 100.0, result, "quota", by, 100.0, ratio, filtered=0, unserved=0)


class TransportsTest(Scratch):
    def setUp(self) -> None:
        super().setUp()
        self.replace("tidegate_bench.record.ROOT", self.folder)
        self.show = transports.Show("transports", self.chosen())

    def chosen(self, *arguments: str) -> argparse.Namespace:
        parser = argparse.ArgumentParser()
        parser.add_argument("--rounds", type=int, default=3)
        transports.Show.arguments(parser)
        options = parser.parse_args(arguments)
        transports.Show.prepare(options)
        return options

    def test_only_streams_have_a_listener_with_room_for_the_connections_of_one_source(self) -> None:
        self.replace("tidegate_bench.demonstrations.transports.tidegate.callee", Mock())
        self.replace("tidegate_bench.demonstrations.transports.load.offer", Mock())
        start = Mock()
        self.replace("tidegate_bench.demonstrations.transports.tidegate.start", start)
        for by, expected in ((UDP, False), (Access("tcp", "each"), True)):
            transports.measure("emulated", by, "", Load(1.0, 0.0, 1.0, 1), "debug", None)
            tables = start.call_args.kwargs["tables"]
            self.assertEqual((access.ROOM in tables, "[[listen]]" in tables), (expected, expected))

    def judged(self, *trials: transports.Trial) -> list[str]:
        """Returns the lines of the verdict, which begin with `ok` or `FAIL`."""
        before = len(self.printed)
        self.show.judge(list(trials))
        return [" ".join(line.split()) for line in self.printed[before:].splitlines()]

    def test_quick_is_one_round_of_one_capacity(self) -> None:
        quick, full = self.chosen("--quick"), self.chosen()
        self.assertEqual((quick.rounds, quick.capacity, quick.multiples), (1, ["quota"], [1.0, 2.0, 4.0]))
        self.assertEqual((full.rounds, full.capacity), (3, ["emulated", "quota"]))
        self.assertEqual(full.multiples, list(transports.MULTIPLES))
        self.assertEqual(self.chosen("--quick", "--capacity", "emulated").capacity, ["emulated"])
        with self.assertRaises(SystemExit):
            self.chosen("--transport", "sctp")

    def test_part_of_the_bound_is_compared_with_that_over_udp(self) -> None:
        # The bound over TCP is 0.89 of the peak at twice the peak, and 0 at ten times.
        lines = self.judged(trial(UDP, 2.0, 0.8), trial(TCP, 2.0, 0.66))
        self.assertIn("ok quota: at 2 times its peak, tcp persistent keeps 0.74 of its bound, UDP 0.80", lines)
        lines = self.judged(trial(UDP, 2.0, 0.8), trial(TCP, 2.0, 0.6))
        self.assertIn("FAIL quota: at 2 times its peak, tcp persistent keeps 0.67 of its bound, UDP 0.80", lines)
        lines = self.judged(trial(UDP, 10.0, 0.8), trial(TCP, 10.0, 0.0))
        told = "quota: at 10 times its peak, tcp persistent is not compared: its bound is at most 0.05 of the peak"
        self.assertIn(told, lines)

    def test_bound_is_that_of_the_emulated_capacity(self) -> None:
        one = replace(trial(TCP, 2.0, 0.8), capacity_cps=125.0)
        # The load, 200 calls/s, is 1.6 times this capacity.
        self.assertAlmostEqual(one.bound, 1.25 * (1 - 1.6 * 0.1) / (1 - 0.1))

    def test_drop_is_measured_near_the_capacity(self) -> None:
        rates: list[float] = []

        def offer(offered: Load, tables: str) -> Outcome:
            self.assertIn('law = "occupancy"', tables)
            self.assertIn('disposal = "drop"', tables)
            rates.append(offered.rate_cps)
            # A drop takes 25 µs, and 20 µs if there are many. 100 ms of CPU time are available each second.
            cost_us = 25.0 if offered.rate_cps < 2000 else 20.0
            usage = replace(outcome(0.0).usage, steady_cpu_s=2e-6 * cost_us * offered.rate_cps, steady_s=2.0)
            return replace(outcome(0.0), offered_cps=offered.rate_cps, usage=usage)

        self.assertAlmostEqual(transports.dropped_us(offer, 1000.0, 100.0, 1), 20.0)
        self.assertEqual([round(rate) for rate in rates], [1000, 3600, 4500])

    def test_drop_is_not_measured_beyond_the_highest_load(self) -> None:
        rates: list[float] = []

        def offer(offered: Load, _: str) -> Outcome:
            rates.append(offered.rate_cps)
            usage = replace(outcome(0.0).usage, steady_cpu_s=1e-6 * offered.rate_cps, steady_s=1.0)
            return replace(outcome(0.0), offered_cps=offered.rate_cps, usage=usage)

        self.assertAlmostEqual(transports.dropped_us(offer, 1000.0, 100.0, 1), 1.0)
        self.assertEqual(rates, [1000.0, 10_000.0])

    def test_measurement_without_drops_fails(self) -> None:
        with self.assertRaisesRegex(RuntimeError, "no call was dropped"):
            transports.dropped_us(lambda *_: replace(outcome(100.0), offered_cps=100.0), 1000.0, 100.0, 1)

    def test_fall_below_that_of_the_bound_is_a_cliff(self) -> None:
        # The bound falls from 1 to 0.89 and to 0.67.
        lines = self.judged(trial(TCP, 4.0, 0.3), trial(TCP, 1.0, 0.9), trial(TCP, 2.0, 0.8))
        self.assertEqual(
            [line for line in lines if "from" in line],
            [
                "ok quota: from 1 to 2 times its peak, tcp persistent loses 0.10 of the peak, its bound 0.11",
                "FAIL quota: from 2 to 4 times its peak, tcp persistent loses 0.50 of the peak, its bound 0.22",
            ],
        )
        lines = self.judged(trial(TCP, 2.0, 0.8), trial(TCP, 4.0, 0.4))
        self.assertIn(
            "ok quota: from 2 to 4 times its peak, tcp persistent loses 0.40 of the peak, its bound 0.22", lines
        )

    def test_bound_that_rises_permits_the_same_fall(self) -> None:
        lines = self.judged(trial(TCP, 0.5, 0.5), trial(TCP, 1.0, 0.3))
        self.assertIn(
            "ok quota: from 0.5 to 1 times its peak, tcp persistent loses 0.20 of the peak, its bound 0.00", lines
        )

    def test_rounds_are_judged_by_their_median(self) -> None:
        lines = self.judged(*(trial(TCP, 1.0, good) for good in (0.9, 1.0, 0.2)), trial(TCP, 2.0, 0.7))
        self.assertIn(
            "ok quota: from 1 to 2 times its peak, tcp persistent loses 0.20 of the peak, its bound 0.11", lines
        )

    def test_goodput_above_the_peak_is_none_to_keep(self) -> None:
        lines = self.judged(trial(TCP, 1.0, 1.2), trial(TCP, 2.0, 0.9))
        self.assertIn(
            "ok quota: from 1 to 2 times its peak, tcp persistent loses 0.10 of the peak, its bound 0.11", lines
        )

    def test_goodput_above_the_bound_of_udp_is_none_to_reach(self) -> None:
        lines = self.judged(trial(UDP, 2.0, 1.2), trial(TCP, 2.0, 0.82))
        self.assertIn("ok quota: at 2 times its peak, tcp persistent keeps 0.92 of its bound, UDP 1.00", lines)

    def test_peak_that_was_not_found_fails(self) -> None:
        lines = self.judged(trial(TCP, 2.0, 2.0))
        self.assertIn("FAIL quota: tcp persistent carries up to 2.00 of the peak that was found", lines)

    def test_slow_generator_fails(self) -> None:
        one = trial(TCP, 1.0, 0.9)
        slow = replace(one, outcome=replace(one.outcome, too_slow=True))
        self.assertIn("FAIL the generator was too slow in 1 of 2 runs", self.judged(one, slow))

    def test_generator_that_loses_messages_fails(self) -> None:
        lossy = trial(TCP, 1.0, 0.9)
        clean = replace(lossy, outcome=replace(lossy.outcome, usage=replace(lossy.outcome.usage, drops=0)))
        self.assertIn("FAIL the generator lost 3 messages in 1 of 2 runs", self.judged(lossy, clean))
        self.assertIn("ok the generator lost 0 messages in 0 of 1 runs", self.judged(clean))
        unsent = replace(clean, outcome=replace(clean.outcome, own_losses=2))
        self.assertIn("FAIL the generator lost 2 messages in 1 of 1 runs", self.judged(unsent))

    def test_trial_is_a_row(self) -> None:
        one = trial(TCP, 2.0, 0.8)
        self.assertEqual(
            (one.row()["goodput"], one.row()["transport"], one.row()["connections"]), (0.8, "tcp", "persistent")
        )
        cells = {column.title: " ".join(column.cell([one]).split()) for column in transports.COLUMNS}
        self.assertEqual((cells["offered"], cells["bound"], cells["of bound"]), ("2.00", "0.89", "0.90"))
