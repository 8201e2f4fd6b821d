"""Ways to reach an element, and the two commands that compare them."""

import argparse
import contextlib
import io
import tomllib
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

from tests.scratch import Scratch
from tests.test_columns import outcome
from tidegate_bench import access, elements, kamailio, peak
from tidegate_bench.access import UDP, Access, Certificate
from tidegate_bench.demonstrations import transports
from tidegate_bench.load import Load, Outcome
from tidegate_bench.overload import Costs
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
        wrong = (["--transport", "sctp"], ["--connections", "some"], ["--transport", "tcp", "--generator", "sipp"])
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


def trial(by: Access, multiple: float, goodput: float, ratio: float = 0.1, capacity: str = "quota") -> transports.Trial:
    result = replace(outcome(100 * goodput), offered_cps=100 * multiple)
    return transports.Trial(1, capacity, by, multiple, 100.0, ratio, result, filtered=0, unserved=0)


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

    def judged(self, *trials: transports.Trial) -> list[str]:
        """The lines of the verdict, which begin with `ok` or `FAIL`."""
        before = len(self.printed)
        self.show.judge(list(trials))
        return [" ".join(line.split()) for line in self.printed[before:].splitlines()]

    def test_quick_is_one_round_of_one_capacity(self) -> None:
        quick, full = self.chosen("--quick"), self.chosen()
        self.assertEqual((quick.rounds, quick.capacity, quick.multiples), (1, ["quota"], [1.0, 2.0, 10.0]))
        self.assertEqual((full.rounds, full.capacity), (3, ["emulated", "quota"]))
        self.assertEqual(full.multiples, list(transports.MULTIPLES))
        self.assertEqual(self.chosen("--quick", "--capacity", "emulated").capacity, ["emulated"])
        with self.assertRaises(SystemExit):
            self.chosen("--transport", "sctp")

    def test_as_large_a_part_of_the_bound_is_as_good(self) -> None:
        # The bounds are 0.89 and 0.95.
        lines = self.judged(trial(UDP, 2.0, 0.8, ratio=0.05), trial(TCP, 2.0, 0.7))
        self.assertIn("ok quota: at 2 times its peak, tcp persistent keeps 0.79 of its bound, UDP 0.84", lines)
        lines = self.judged(trial(UDP, 2.0, 0.8, ratio=0.05), trial(TCP, 2.0, 0.6))
        self.assertIn("FAIL quota: at 2 times its peak, tcp persistent keeps 0.67 of its bound, UDP 0.84", lines)

    def test_where_nothing_can_be_kept_nothing_is_expected(self) -> None:
        lines = self.judged(trial(UDP, 10.0, 0.8, ratio=0.01), trial(TCP, 10.0, 0.0))
        self.assertIn("quota: at 10 times its peak, tcp persistent can keep nothing beside the rejections", lines)

    def test_cliff_is_a_fall_that_the_bound_does_not_explain(self) -> None:
        def step(goodput: float, ratio: float) -> str:
            points = (trial(TCP, 2.0, 0.9, ratio), trial(TCP, 4.0, goodput, ratio))
            [line] = [line for line in self.judged(*points) if "from 2 to 4" in line]
            return line.split()[0]

        self.assertEqual((step(0.7, 0.01), step(0.5, 0.01)), ("ok", "FAIL"))
        # The bound itself falls from 0.83 to 0.5.
        self.assertEqual((step(0.4, 0.143), step(0.2, 0.143)), ("ok", "FAIL"))

    def test_emulated_rejection_costs_nothing_if_it_is_dropped(self) -> None:
        costs = Costs(offer_us=100, serve_us=733, refuse_us=200)
        refused = replace(outcome(0.0), refused_cps=50.0)
        self.assertAlmostEqual(transports.refused_us(refused, costs), 400 / 4)
        self.assertEqual(transports.refused_us(refused, None), refused.steady_us_per_call)

    def test_trial_is_a_row(self) -> None:
        one = trial(TCP, 2.0, 0.8)
        self.assertEqual(
            (one.row()["goodput"], one.row()["transport"], one.row()["connections"]), (0.8, "tcp", "persistent")
        )
        cells = {column.title: " ".join(column.cell([one]).split()) for column in transports.COLUMNS}
        self.assertEqual((cells["offered"], cells["bound"], cells["of bound"]), ("2.00", "0.89", "0.90"))
