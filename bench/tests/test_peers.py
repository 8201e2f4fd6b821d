import json
import signal
import socket
import tomllib
from pathlib import Path
from unittest.mock import Mock

from tests.scratch import Scratch
from tidegate_bench import impair, kamailio, load, message, registrations, sipp, tidegate
from tidegate_bench.baresip import ESTABLISHED, Baresip
from tidegate_bench.exchange import Exchange
from tidegate_bench.flood import Flood, judge_rate
from tidegate_bench.load import Load
from tidegate_bench.process import Cores, Process, Stage
from tidegate_bench.replay import Replayed
from tidegate_bench.sipp import Calls, Sipp
from tidegate_bench.stranger import _checksum, _port_unreachable
from tidegate_bench.tidegate import Caller, Metrics

STATISTICS = """\
StartTime;TotalCallCreated;SuccessfulCall(C);FailedCall(C);FailedUnexpectedMessage(C);OutOfCallMsgs(C);Retransmissions(C)
a;10;5;0;0;0;0
b;40;38;2;1;3;7
"""
COUNTS = """\
CurrentTime;ElapsedTime;0_INVITE_Sent;0_INVITE_Retrans;3_503_Recv;
x;00:00:01:500000;100;2;0;
x;00:01:02:000000;6200;9;31;
"""


class SippTest(Scratch):
    def made(self, statistics: str) -> Sipp:
        file = self.folder / "uac.csv"
        file.write_text(statistics)
        return Sipp(Mock(pid=77), 5060, file)

    def test_last_line_counts(self) -> None:
        calls = self.made(STATISTICS).calls()
        self.assertEqual(calls, Calls(40, 38, 2, 1, 3, 7))
        self.assertFalse(calls.clean)
        self.assertEqual(str(calls).split(", ")[:2], ["40 calls", "38 successful"])

    def test_without_statistics_there_are_no_calls(self) -> None:
        self.assertEqual(self.made(STATISTICS.splitlines()[0] + "\n").calls(), Calls(0, 0, 0, 0, 0, 0))

    def test_run_is_clean_only_if_all_calls_succeeded(self) -> None:
        self.assertTrue(Calls(5, 5, 0, 0, 0, 9).clean)
        for wrong in (Calls(5, 4, 0, 0, 0, 0), Calls(5, 5, 0, 1, 0, 0), Calls(5, 5, 0, 0, 1, 0)):
            self.assertFalse(wrong.clean)

    def test_counts_have_their_time(self) -> None:
        (self.folder / "uac_77_counts.csv").write_text(COUNTS)
        first, last = self.made(STATISTICS).counts()
        self.assertEqual((first["elapsed_s"], first["0_INVITE_Sent"]), (1.5, 100.0))
        self.assertEqual((last["elapsed_s"], last["3_503_Recv"]), (62.0, 31.0))

    def test_response_times_are_in_seconds(self) -> None:
        (self.folder / "uac_77_rtt.csv").write_text("Date_ms;response_time_ms;rtd_no\n1500;250;1\n")
        self.assertEqual(self.made(STATISTICS).response_times(), [(1.5, 0.25)])

    def test_command_names_a_scenario_of_ours_by_its_file(self) -> None:
        stage = Mock(directory=self.folder)
        self.assertIn("-sn", sipp.command(stage, "uac", "uac", 5060))
        words = sipp.command(stage, "uac", "uac-cancel", 5061, "127.0.0.2", tolerant=True, options=["-d", "5"])
        self.assertIn(str(sipp.SCENARIOS / "uac-cancel.xml"), words)
        self.assertTrue(Path(words[words.index("-sf") + 1]).exists())
        self.assertIn("-default_behaviors", words)
        self.assertEqual(words[-2:], ["-d", "5"])


METRICS = """\
# TYPE tidegate_work_rejected_total counter
tidegate_work_rejected_total{bucket="session",reason="law"} 7
tidegate_work_rejected_total{bucket="session",reason="full"} 2
tidegate_work_rejected_totally{reason="law"} 100
tidegate_messages_received_total{class="bye"} 5
tidegate_backend_up{backend="127.0.0.1:5070"} 1
tidegate_backend_up{backend="127.0.0.1:5071"} 0
tidegate_bans 3
tidegate_bans_beyond_kernel 8
"""


class TidegateTest(Scratch):
    def test_metrics_are_summed_by_name_and_labels(self) -> None:
        metrics = Metrics(METRICS)
        self.assertEqual(metrics.total("work_rejected"), 9)
        self.assertEqual(metrics.total("work_rejected", reason="law"), 7)
        self.assertEqual(metrics.total("messages_received", class_="bye"), 5)
        self.assertEqual(list(metrics.samples("backend_up")), [1.0, 0.0])
        self.assertEqual(metrics.value("bans"), 3.0)
        self.assertEqual(metrics.value("bans", shard="0"), 0.0)
        self.assertEqual(metrics.value("absent"), 0.0)

    def test_configuration_is_toml_with_the_added_tables(self) -> None:
        edge = tidegate.configure(
            Mock(directory=self.folder),
            [5070, "127.0.0.9:5071"],
            mode="transaction",
            server="calls_max = 5",
            tables='[overload]\nlaw = "pi"\n',
            name="first",
            state="shared",
        )
        read = tomllib.loads(edge.configuration.read_text())
        uris = [backend["uri"] for backend in read["pool"][0]["backend"]]
        self.assertEqual(uris, ["sip:127.0.0.1:5070", "sip:127.0.0.9:5071"])
        self.assertEqual(read["listen"][0]["address"], edge.address)
        self.assertEqual((read["server"]["calls_max"], read["overload"]["law"]), (5, "pi"))
        self.assertEqual(read["server"]["state_dir"], str(self.folder / "shared-state"))
        self.assertEqual(edge.configuration.name, "first.toml")

    def test_program_that_is_not_built_ends_the_script(self) -> None:
        with self.assertRaises(SystemExit):
            tidegate.built("no-such-program")

    def test_report_of_our_caller_has_the_form_of_the_report_of_sipp(self) -> None:
        stats = {"offered": 9, "completed": 8, "failed": {"malformed": 1}, "unexpected": 2, "repeated": {"invite": 3}}
        report = self.folder / "uac.json"
        report.write_text(json.dumps({"stats": stats}))
        self.assertEqual(Caller(Mock(), 5060, report).calls(), Calls(9, 8, 1, 1, 2, 3))

    def test_missing_report_ends_the_script(self) -> None:
        with self.assertRaises(SystemExit):
            Caller(Mock(), 5060, self.folder / "none.json").stats()


class OtherPeersTest(Scratch):
    def test_kamailio_gets_its_definitions(self) -> None:
        stage, defines = Mock(directory=self.folder), {"TO": '"sip:a"', "TRANSACTIONS": ""}
        words = kamailio.command(stage, Path("k.cfg"), "10.0.0.1", 5070, defines, allocator=None)
        self.assertIn("udp:10.0.0.1:5070", words)
        self.assertIn('TO="sip:a"', words)
        self.assertIn("TRANSACTIONS", words)
        self.assertNotIn("-x", words)
        self.assertIn("-x", kamailio.command(stage, Path("k.cfg"), "10.0.0.1", 5070, {}))

    def test_kamailio_listens_for_tcp_if_it_may_have_connections(self) -> None:
        stage = Mock(directory=self.folder)
        for defines, is_over_tcp in (({}, False), ({"TCP_MAX": "9"}, True)):
            words = kamailio.command(stage, Path("k.cfg"), "10.0.0.1", 5070, defines)
            self.assertEqual("tcp:10.0.0.1:5070" in words, is_over_tcp)

    def test_connections_of_registrations_fit_into_a_process(self) -> None:
        short, long = Load(1_000, 1, 3, 1), Load(5_000, 1.5, 2.5, 1)
        for mode in registrations.MODES:
            self.assertEqual(registrations.fitted(mode, short), short)
        self.assertEqual(registrations.fitted("udp", long), long)
        fitted = registrations.fitted("opening", long)
        self.assertAlmostEqual(fitted.rate_cps * fitted.seconds, 13_000)
        self.assertAlmostEqual(fitted.warm_up_s / fitted.measured_s, 1.5 / 2.5)

    def test_each_mode_of_registrations_has_its_connections(self) -> None:
        def after(option: str, mode: str, load: Load) -> str | None:
            words = registrations.connections(mode, load)
            return words[words.index(option) + 1] if option in words else None

        load = Load(1_000, 1, 3, 1)
        self.assertEqual(
            [after("--connections", mode, load) for mode in registrations.MODES], [None, "each", "4180", "500"]
        )
        self.assertEqual(
            [after("--transport", mode, load) for mode in registrations.MODES], [None, "tcp", "tcp", "tcp"]
        )
        self.assertEqual(after("--connections", "persistent", Load(0.5, 1, 3, 1)), "1")

    def test_queue_limit_of_a_registrations_element_is_in_its_configuration(self) -> None:
        start = Mock(return_value=Mock(address="127.0.0.1:5060"))
        self.replace("tidegate_bench.tidegate.callee", Mock(return_value=Mock(port=5070)))
        self.replace("tidegate_bench.tidegate.start", start)
        overload = '[overload]\nlaw = "none"\n'
        element = registrations.with_queue(256, overload)(Mock(), "udp", None, "release")
        configuration = start.call_args.kwargs
        self.assertEqual((element.address, configuration["queue_max"]), ("127.0.0.1:5060", 256))
        self.assertEqual(tomllib.loads(configuration["tables"])["overload"], {"law": "none"})
        registrations.ELEMENTS["tidegate"](Mock(), "udp", None, "release")
        self.assertEqual(start.call_args.kwargs["queue_max"], tidegate.DEFAULT_QUEUE_MAX)
        self.assertNotIn("overload", tomllib.loads(start.call_args.kwargs["tables"]))

    def test_cpu_time_of_a_caller_that_ends_is_counted(self) -> None:
        caller, element = Mock(), Mock()
        caller.cpu_ns.side_effect = [0, 50_000_000]
        caller.drops.return_value = 0
        element.cpu_ns.return_value = 0
        element.wakes.return_value = 0
        _, usage = load.run(lambda: caller, element, None, Load(1, 0.0, 0.01, 1), lambda ended: None)
        self.assertGreater(usage.caller, 0.0)

    def test_quality_names_the_differences_from_a_perfect_link(self) -> None:
        quality = impair.Quality(loss="5%", delay="20ms")
        self.assertEqual((str(quality), quality.loss_share), ("loss 5%, delay 20ms", 0.05))

    def test_flood_reads_the_figures_of_the_generator(self) -> None:
        self.replace("tidegate_bench.flood.built", lambda program, profile: program)
        process = Mock(exit_status=0)
        process.tail.return_value = "    invites 10 rejected 7 behind_s 0.5"
        stage = Mock()
        stage.start.return_value = process
        figures = Flood(stage, "127.0.0.1:5060", 10, 1.0, "debug").finish(1)
        self.assertEqual(figures, {"invites": 10.0, "rejected": 7.0, "behind_s": 0.5})
        process.exit_status = 1
        with self.assertRaises(SystemExit):
            Flood(stage, "127.0.0.1:5060", 10, 1.0, "debug").finish(1)

    def test_flood_that_is_too_small_is_a_missed_condition(self) -> None:
        for sent_cps, held in (([95_000, 99_000], True), ([30_000, 100_000], False)):
            record = Mock()
            judge_rate(record, sent_cps, 100_000)
            self.assertEqual(record.expect.call_args.args[0], held)

    def test_replay_is_described_in_one_line(self) -> None:
        self.assertEqual(Replayed(True, "law pi\nexact: 3 of 3\n", {}).line, "exact: 3 of 3")
        self.assertEqual(Replayed(False, "no such file\n", {}).line, "no such file")


class StrangerTest(Scratch):
    def test_checksum_of_the_whole_is_zero(self) -> None:
        packet = _port_unreachable("127.0.0.1:5060", "127.0.0.9:5070")
        self.assertEqual(packet[:2], bytes([3, 3]))
        self.assertEqual(_checksum(packet), 0)
        # RFC 1071 §3 gives this example.
        self.assertEqual(_checksum(bytes.fromhex("0001f203f4f5f6f7")), 0x220D)


def invite(to: str = "", number: str = "service", cseq: int = 1, method: str = "INVITE") -> bytes:
    tag = f"<sip:{number}@x>{to}"
    options = {"branch": f"z9hG4bK{method}{cseq}{to}{number}", "from_tag": "f", "call": "c1"}
    return message.request(method, f"sip:{number}@x", "127.0.0.1:9", cseq=cseq, to=tag, **options)


class UserAgentTest(Scratch):
    """Tests of the user agents, called directly and over a socket."""

    def test_header_fields_are_read_whatever_their_case(self) -> None:
        self.assertEqual(message.value(invite(), "call-id"), "c1")
        self.assertEqual(message.value(invite(), "Absent"), "")

    def test_answers_over_the_socket_with_the_vias_of_the_request(self) -> None:
        exchange = Exchange()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
            caller.settimeout(5)
            caller.sendto(invite(), ("127.0.0.1", exchange.port))
            response = caller.recv(4096)
        seen = exchange.close()
        self.assertTrue(response.startswith(b"SIP/2.0 200 OK\r\n"))
        self.assertEqual(message.value(response, "Via"), message.value(invite(), "Via"))
        self.assertIn(";tag=", message.value(response, "To"))
        self.assertEqual(seen.requests["stranger"], 1)

    def test_numbers_of_the_exchange_are_answered_as_documented(self) -> None:
        exchange = Exchange()
        expected = {"overloaded": b"503", "nobody": b"404", "ringing": b"183", "service": b"200"}
        for number, status in expected.items():
            [response] = exchange.responses("INVITE", invite(number=number))
            self.assertEqual(response[8:11], status)
        self.assertEqual(exchange.responses("INVITE", invite(number="silent")), [])
        self.assertEqual([r[8:11] for r in exchange.responses("INVITE", invite(number="rejecting"))], [b"183", b"486"])
        self.assertEqual(exchange.close().requests["stranger"], 6)

    def test_bye_ends_a_call_only_with_its_tags(self) -> None:
        exchange = Exchange()
        [answered] = exchange.responses("INVITE", invite())
        tag = ";tag=" + message.value(answered, "To").partition(";tag=")[2]
        [wrong] = exchange.responses("BYE", invite(";tag=forged", cseq=2, method="BYE"))
        self.assertEqual((wrong[8:11], exchange.seen.live["stranger"]), (b"481", 1))
        [right] = exchange.responses("BYE", invite(tag, cseq=3, method="BYE"))
        self.assertEqual((right[8:11], exchange.seen.live["stranger"]), (b"200", 0))
        self.assertEqual(exchange.close().live_max["stranger"], 1)


class BaresipTest(Scratch):
    def test_dial_returns_how_the_call_began_or_ended(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            phone = Baresip(Mock(directory=self.folder), "phone", {"config": ""}, server.getsockname()[1])
            control = server.accept()[0]
        closed = {"type": "CALL_CLOSED", "param": "430 Flow Failed"}
        with control, phone._control:
            for event in ({"type": "CALL_RINGING"}, closed, {"type": "CALL_ESTABLISHED"}):
                text = json.dumps(event).encode()
                control.sendall(b"%d:%s," % (len(text), text))
            self.assertEqual([phone.dial("sip:bob@h") for _ in range(2)], ["430 Flow Failed", ESTABLISHED])
            self.assertTrue(phone.dial("sip:bob@h", 0.01).startswith("no final response"))


class ProcessTest(Scratch):
    def test_stage_ends_its_processes_and_removes_its_folder(self) -> None:
        with Stage() as stage:
            process = stage.start("sleeper", ["sleep", "60"])
            self.assertTrue(process.running())
            self.assertEqual(process.pids(), [process.pid])
            folder = stage.directory
        self.assertEqual(process.exit_status, -signal.SIGTERM)
        self.assertFalse(folder.exists())

    def test_process_has_its_exit_status_and_output(self) -> None:
        process = Process("said", ["sh", "-c", "echo one; echo two; exit 3"], self.folder / "said.log")
        self.assertTrue(process.wait(10))
        self.assertEqual((process.exit_status, process.tail(1)), (3, "    two"))

    def test_cpu_time_is_that_of_the_process_and_its_children(self) -> None:
        with Stage() as stage:
            process = stage.start("busy", ["sh", "-c", "sh -c 'while :; do :; done' & wait"])
            cores = Cores(process)
            process.wait(0.4)
            [used] = cores.used()
            self.assertGreater(used, 0.02)
            stage.kill()

    def test_port_that_is_never_opened_ends_the_script(self) -> None:
        with Stage() as stage, self.assertRaises(SystemExit):
            stage.serve("true", ["true"], 1, seconds=5)
