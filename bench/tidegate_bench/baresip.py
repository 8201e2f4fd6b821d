"""Baresip, a phone without screen and sound card, controlled through its module ctrl_tcp."""

import contextlib
import json
import socket
import time
from pathlib import Path
from typing import Any

from tidegate_bench.process import Stage
from tidegate_bench.sockets import LOCALHOST

ESTABLISHED = "established"
# A phone that plays a tone and discards the sound that it receives. Debian installs the modules in this folder.
_CONFIGURATION = """\
poll_method epoll
sip_listen SIP_ADDRESS
ctrl_tcp_listen 127.0.0.1:CONTROL_PORT
module_path /usr/lib/baresip/modules
module_tmp uuid.so
module_tmp account.so
module g711.so
module ausine.so
module aufile.so
module_app menu.so
module_app ctrl_tcp.so
audio_source ausine,440
ausrc_srate 48000
ausrc_channels 2
audio_player aufile,/dev/null
audio_alert aufile,/dev/null
"""


def phone_files(account: str, address: str, control_port: int) -> dict[str, str]:
    """Returns the files of a phone that listens at `address`, and accepts each call to this account."""
    config = _CONFIGURATION.replace("SIP_ADDRESS", address).replace("CONTROL_PORT", str(control_port))
    return {"config": config, "accounts": f"{account};answermode=auto\n"}


class Baresip:
    """One running phone. It answers calls by itself."""

    def __init__(self, stage: Stage, name: str, files: dict[str, str], port: int) -> None:
        """Starts the phone with these files in its directory. Its module ctrl_tcp listens at `port`."""
        home: Path = stage.directory / name
        home.mkdir()
        for file, text in {"contacts": "", **files}.items():
            (home / file).write_text(text)
        self.name = name
        self.process = stage.start(name, ["baresip", "-f", str(home)])
        self._control = self._connect(port)
        self._received = b""

    def command(self, command: str, argument: str = "") -> None:
        """Sends a command to the phone, such as `dial`."""
        text = json.dumps({"command": command, "params": argument, "token": command}).encode()
        self._control.sendall(b"%d:%s," % (len(text), text))

    def dial(self, uri: str, seconds: float = 20) -> str:
        """Makes a call. Returns `ESTABLISHED`, or the reason why the call ended, such as `430 Flow Failed`."""
        self.command("dial", uri)
        found = self._next(time.monotonic() + seconds, "type", "CALL_ESTABLISHED", "CALL_CLOSED")
        if found is None:
            return f"no final response in {seconds:g} s"
        return ESTABLISHED if found["type"] == "CALL_ESTABLISHED" else str(found.get("param", "no reason"))

    def event(self, kind: str, seconds: float = 20) -> dict[str, Any] | None:
        """Returns the next event of this kind, such as `CALL_ESTABLISHED`, or `None` if none arrives in time."""
        return self._next(time.monotonic() + seconds, "type", kind)

    def registered(self, seconds: float = 20) -> bool:
        """Waits until the phone is registered. Returns false if that takes too long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.command("reginfo")
            told = self._next(deadline, "token", "reginfo")
            if told and "OK" in told.get("data", ""):
                return True
            time.sleep(0.1)
        return False

    def _next(self, deadline: float, name: str, *wanted: str) -> dict[str, Any] | None:
        while time.monotonic() < deadline:
            message = self._message()
            if message is not None and message.get(name) in wanted:
                return message
        return None

    def _connect(self, port: int) -> socket.socket:
        deadline = time.monotonic() + 20
        while True:
            try:
                control = socket.create_connection((LOCALHOST, port))
            except ConnectionRefusedError:
                if time.monotonic() > deadline or not self.process.running():
                    raise SystemExit(f"{self.name} does not listen:\n{self.process.tail()}") from None
                time.sleep(0.05)
            else:
                control.settimeout(0.1)
                return control

    def _message(self) -> dict[str, Any] | None:
        """Returns the next message (a netstring) if it has arrived. Otherwise waits for more bytes and returns `None`.

        It waits for at most 0.1 s.
        """
        length, colon, rest = self._received.partition(b":")
        if colon and len(rest) > int(length):
            self._received = rest[int(length) + 1 :]
            message: dict[str, Any] = json.loads(rest[: int(length)])
            return message
        with contextlib.suppress(TimeoutError):
            self._received += self._control.recv(65536)
        return None
