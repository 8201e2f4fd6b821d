"""A browser phone registers, calls and is called over a secure WebSocket. Either side can hang up

A web server of this machine serves a page with JsSIP, and Chromium opens it. JsSIP registers with a password at a
Kamailio behind Tidegate, and calls a SIPp through both. The browser ends every other call, and SIPp ends the rest. The
BYEs of SIPp are addressed to a host that does not exist, `something.invalid`, and must arrive on the connection of the
browser. The browser also calls a Baresip that has registered through Tidegate over UDP. They agree on keys (DTLS-SRTP)
and on addresses (ICE), and each must hear the other. Then a SIPp calls the browser through Kamailio, which has stored
the Path of Tidegate. After the page was closed without unregistering, such a call gets 430. The same page from another
origin gets no connection.
"""

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import threading
import time
from argparse import Namespace
from dataclasses import asdict
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tidegate_bench import kamailio, sipp, tidegate
from tidegate_bench.baresip import Baresip, phone_files
from tidegate_bench.browser import Browser
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage
from tidegate_bench.record import ROOT, Record
from tidegate_bench.sockets import LOCALHOST, free_port

JSSIP = ROOT / "out/peers/jssip/jssip.js"
CALLS = 10
TALK_S = 4
# Half of the rate of G.711, in which both phones send sound.
HEARD_MIN_BPS = 32_000
# Without these options Chromium names its addresses only to peers that can ask it by multicast DNS, and plays no sound
# before the user has clicked.
MEDIA = ["--disable-features=WebRtcHideLocalIpsWithMdns", "--autoplay-policy=no-user-gesture-required"]

REGISTRAR = """\
#!KAMAILIO
log_stderror=yes
# With two children, an ACK and the BYE after it may change places.
children=1
disable_tcp=yes
auto_aliases=no
alias="example.test"
loadmodule "sl.so"
loadmodule "tm.so"
loadmodule "rr.so"
loadmodule "pv.so"
loadmodule "siputils.so"
loadmodule "textops.so"
loadmodule "auth.so"
loadmodule "usrloc.so"
loadmodule "registrar.so"
modparam("registrar", "use_path", 1)
modparam("registrar", "path_mode", 1)
request_route {
	if (has_totag()) {
		if (loose_route() || is_method("ACK")) t_relay();
		exit;
	}
	if (is_method("CANCEL")) {
		t_relay();
		exit;
	}
	# A call to the browser, from a caller that sends to this registrar.
	if (is_method("INVITE") && $rU == "alice") {
		if (!lookup("location")) {
			sl_send_reply("404", "Not Registered");
			exit;
		}
		record_route();
		t_relay();
		exit;
	}
	if (!pv_www_authenticate("example.test", "secret", "0")) {
		www_challenge("example.test", "1");
		exit;
	}
	if (is_method("REGISTER")) {
		save("location");
		exit;
	}
	record_route();
	if ($rU == "carol") {
		if (!lookup("location")) {
			sl_send_reply("404", "Not Registered");
			exit;
		}
		t_relay();
		exit;
	}
	t_relay_to_udp("CALLEE_HOST", "CALLEE_PORT");
}
"""

PAGE = """\
<!doctype html>
<meta charset="utf-8">
<link rel="icon" href="data:,">
<script src="jssip.js"></script>
<script>
const state = { registered: false, refused: false, calls: [], received: [], talk: null, heard: 0 };
const silence = () => new AudioContext().createMediaStreamDestination().stream;
const pcConfig = { iceServers: [] };
function start(url) {
  const socket = new JsSIP.WebSocketInterface(url);
  window.phone = new JsSIP.UA({ sockets: [socket], uri: 'sip:alice@example.test', password: 'secret' });
  phone.on('registered', () => { state.registered = true; });
  phone.on('disconnected', () => { state.refused = true; });
  phone.on('newRTCSession', ({ originator, session }) => {
    if (originator === 'remote') receive(session);
  });
  phone.start();
}
function follow(session, calls, hangsUp) {
  const own = { established: false, by: '', cause: '' };
  calls.push(own);
  session.on('confirmed', () => {
    own.established = true;
    if (hangsUp) session.terminate();
  });
  for (const event of ['ended', 'failed']) {
    session.on(event, ({ originator, cause }) => { own.by = originator; own.cause = cause; });
  }
  return own;
}
function receive(session) {
  follow(session, state.received, state.received.length % 2 === 0);
  session.answer({ mediaStream: silence(), pcConfig });
}
function call(hangsUp) {
  follow(phone.call('sip:bob@example.test', { mediaStream: silence(), pcConfig }), state.calls, hangsUp);
}
function tone() {
  const context = new AudioContext();
  const output = context.createMediaStreamDestination();
  const oscillator = context.createOscillator();
  oscillator.connect(output);
  oscillator.start();
  return output.stream;
}
// Notes how many bytes of sound the browser has received from the other phone.
async function measure() {
  for (const entry of (await talking.connection.getStats()).values()) {
    if (entry.type === 'inbound-rtp') state.heard = entry.bytesReceived;
  }
}
function talk() {
  window.talking = phone.call('sip:carol@example.test', { mediaStream: tone(), pcConfig });
  state.talk = follow(talking, [], false);
  talking.on('confirmed', () => setInterval(measure, 100));
}
</script>
"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a log."""

    def log_message(self, *_: object) -> None:
        pass


class Site:
    """A web server with the page."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "index.html").write_text(PAGE)
        shutil.copy(JSSIP, folder / "jssip.js")
        self.server = ThreadingHTTPServer((LOCALHOST, 0), partial(Quiet, directory=str(folder)))
        self.port = self.server.server_address[1]

    def __enter__(self) -> "Site":
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def certificate(folder: Path) -> tuple[Path, Path, str]:
    """Returns a certificate for this machine, its key, and the hash that makes Chromium accept it."""
    file, key = folder / "own.pem", folder / "own.key"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    words += [
        "-subj",
        "/CN=tidegate",
        "-addext",
        f"subjectAltName=IP:{LOCALHOST}",
        "-keyout",
        str(key),
        "-out",
        str(file),
    ]
    subprocess.run(words, check=True, capture_output=True)
    words = ["openssl", "pkey", "-in", str(key), "-pubout", "-outform", "DER"]
    public = subprocess.run(words, check=True, capture_output=True).stdout
    return file, key, base64.b64encode(hashlib.sha256(public).digest()).decode()


def registrar(stage: Stage, callee: int) -> int:
    """Starts a Kamailio that knows the password of alice and relays calls to the callee. Returns its port."""
    file, port = stage.directory / "registrar.cfg", free_port()
    file.write_text(REGISTRAR.replace("CALLEE_HOST", LOCALHOST).replace("CALLEE_PORT", str(callee)))
    stage.serve("registrar", kamailio.command(stage, file, LOCALHOST, port, {}, allocator=None), port)
    return port


def baresip(stage: Stage, edge: tidegate.Edge) -> Baresip:
    """Starts a Baresip that registers as carol through Tidegate, and can talk to a browser."""
    account = f'<sip:carol@example.test>;auth_pass=secret;outbound="sip:{edge.address}";sipnat=outbound;regint=600'
    account += ";audio_codecs=PCMU;mediaenc=dtls_srtp;medianat=ice"
    control_port = free_port()
    files = phone_files(account, f"{LOCALHOST}:{free_port()}", control_port)
    # A browser sends RTP and RTCP to one port (RFC 8834 §4.5).
    files["config"] += "module srtp.so\nmodule dtls_srtp.so\nmodule ice.so\nrtcp_mux yes\n"
    return Baresip(stage, "carol", files, control_port)


def talk(record: Record, browser: Browser, phone: Baresip) -> dict[str, int]:
    """Calls carol from the browser, which hangs up after some seconds. Returns the bit rate that each side received."""
    record.expect(phone.registered(), "the Baresip is registered, with a password")
    browser.evaluate("talk()")
    established = browser.wait("state.talk.established")
    record.expect(established, "the Baresip answers a call of the browser")
    before = browser.evaluate("state.heard")
    time.sleep(TALK_S)
    rate = 8 * (browser.evaluate("state.heard") - before) // TALK_S
    # Baresip prints the rates at which it sends and receives, again and again.
    printed = re.findall(r"audio=(\d+)/(\d+) \(bit/s\)", phone.process.output.read_text())
    heard = {"browser_heard_bps": rate, "baresip_heard_bps": int(printed[-1][1]) if printed else 0}
    record.expect(min(heard.values()) >= HEARD_MIN_BPS, f"both hear each other, in bits a second: {heard}")
    browser.evaluate("talking.terminate()")
    record.expect(phone.event("CALL_CLOSED") is not None, "the browser hangs up")
    return heard


def caller_behind(stage: Stage, name: str, registrar_port: int, calls: int) -> sipp.Sipp:
    """Starts a SIPp that calls alice through the registrar, one call after the other."""
    options = ["-l", "1", "-s", "alice"]
    target = f"{LOCALHOST}:{registrar_port}"
    return sipp.caller(stage, name, target, rate_cps=5, calls=calls, scenario="uac-browser", options=options)


def one_run(record: Record, round_: int) -> dict[str, Any]:
    print(f"round {round_}")
    begun = time.monotonic()
    with Stage() as stage, Site(stage.directory / "site") as site:
        callee = sipp.callee(stage, "callee", "uas-browser")
        file, key, accepted = certificate(stage.directory)
        secure = free_port()
        listen = f"""
[[listen]]
transport = "wss"
address = "{LOCALHOST}:{secure}"
certificate = "{file}"
private_key = "{key}"
origins = ["http://{LOCALHOST}:{site.port}"]
"""
        behind = registrar(stage, callee.port)
        edge = tidegate.start(stage, [behind], mode="transaction", tables=listen)
        carol = baresip(stage, edge)
        url = f"wss://{LOCALHOST}:{secure}"
        with Browser(options=[f"--ignore-certificate-errors-spki-list={accepted}", *MEDIA]) as browser:
            browser.visit(f"http://localhost:{site.port}/")
            browser.evaluate(f"start('{url}')")
            refused = browser.wait("state.refused") and not browser.evaluate("state.registered")
            browser.visit(f"http://{LOCALHOST}:{site.port}/")
            browser.complaints.clear()
            browser.evaluate(f"start('{url}')")
            registered = browser.wait("state.registered")
            for number in range(CALLS):
                hangs_up = str(number % 2 == 0).lower()
                browser.evaluate(f"call({hangs_up})")
                browser.wait("state.calls.at(-1).by !== ''")
            calls = browser.evaluate("state.calls")
            heard = talk(record, browser, carol)
            calling = caller_behind(stage, "caller", behind, CALLS)
            calling.process.wait(60)
            browser.wait(f"state.received.filter((call) => call.by !== '').length === {CALLS}")
            received = browser.evaluate("state.received")
            complaints = list(browser.complaints)
        # The browser has ended, but its registration still exists.
        late = caller_behind(stage, "late", behind, 1)
        late.process.wait(60)
        made, missed = calling.calls(), late.calls()
        metrics = edge.metrics()
        served = callee.finish()
        logs = ("tidegate.log", "registrar.log", "callee.errors")
        record.keep(*(stage.directory / name for name in logs), prefix=f"{round_}-")
    record.expect(refused, "a page of another origin gets no connection")
    record.expect(registered, "the browser is registered, with a password")
    established = sum(call["established"] for call in calls)
    by = [call["by"] for call in calls]
    record.expect(established == CALLS, f"{established} of {CALLS} calls are answered")
    wanted = ["local", "remote"] * (CALLS // 2)
    record.expect(by == wanted, f"the browser and the callee hang up in turn: {by}")
    record.expect(served.clean and served.created == CALLS, f"the callee: {served}")
    established_received = sum(call["established"] for call in received)
    record.expect(established_received == CALLS, f"the browser answers {established_received} of {CALLS} calls")
    by_received = [call["by"] for call in received]
    record.expect(by_received == wanted, f"the browser and the caller hang up in turn: {by_received}")
    record.expect(made.clean and made.created == CALLS, f"the caller: {made}")
    over_flow = metrics.total("registered_flow_requests")
    record.expect(over_flow >= 2 * CALLS, f"{over_flow:.0f} requests on the flow of the registration")
    gone = metrics.total("replies", status="430", reason="flow_gone")
    record.expect(missed.failed == 1 and gone == 1, f"a call after the browser has ended gets 430: {gone:.0f}")
    record.expect(not complaints, f"no error or warning in the browser: {complaints}")
    handshakes = {
        outcome: metrics.total("websocket_handshakes", outcome=outcome) for outcome in ("completed", "origin")
    }
    record.expect(handshakes["completed"] == 1 and handshakes["origin"] >= 1, f"handshakes: {handshakes}")
    row = {"round": round_, "registered": registered, "established": established, **asdict(served)}
    row |= {"received": established_received, "requests_on_flow": over_flow, "gone": gone, **heard}
    return row | {"rejected_origin": handshakes["origin"], "seconds": round(time.monotonic() - begun, 1)}


class Show(Demonstration):
    ROUNDS = 3

    @classmethod
    def prepare(cls, options: Namespace) -> None:
        programs = ("chromium", "kamailio", "sipp", "baresip", "openssl")
        missing = [program for program in programs if not shutil.which(program)]
        missing += [] if JSSIP.exists() else [str(JSSIP)]
        if missing:
            sys.exit(f"{', '.join(missing)}: missing; `scripts/setup browser` installs it")

    def run(self) -> Results:
        return {"runs": self.rows("runs", [one_run(self, round_) for round_ in self.rounds])}
