"""Debian's Chromium without a window, controlled by the DevTools protocol over a pipe."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# The browser reads commands from descriptor 3 and writes answers to 4.
COMMANDS, ANSWERS = 3, 4


class Browser:
    """One page in a separate browser, with its error messages and its network requests."""

    def __init__(self, width: int = 1280, height: int = 900, options: Sequence[str] = ()) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._profile = tempfile.mkdtemp(prefix="tidegate-browser-")
        self._next, self._rest = 0, b""
        self._process, self._write, self._read = _started(self._profile, options)
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.size(width, height)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        shutil.rmtree(self._profile, ignore_errors=True)

    def size(self, width: int, height: int) -> None:
        """Sets the size of the window, in CSS pixels."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1.5, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", metrics)

    def colours(self, scheme: str) -> None:
        """Sets the preferred colour scheme, `light` or `dark`."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.send("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, file: Path) -> None:
        """Opens a file and waits until it is loaded."""
        self.send("Page.navigate", {"url": file.resolve().as_uri()})
        self.wait("document.readyState === 'complete' && location.protocol === 'file:'")

    def visit(self, url: str) -> None:
        """Opens a page of a server and waits until it is loaded."""
        self.send("Page.navigate", {"url": url})
        self.wait(f"document.readyState === 'complete' && location.href === {json.dumps(url)}")

    def evaluate(self, script: str) -> Any:
        """Returns the result of the JavaScript `script`."""
        given = {"expression": script, "returnByValue": True, "awaitPromise": True}
        answer = self.send("Runtime.evaluate", given)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 20) -> bool:
        """Waits until the JavaScript `condition` is true. Returns False if that takes more than `seconds`."""
        end = time.monotonic() + seconds
        while not self.evaluate(f"Boolean({condition})"):
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Presses the button at `start` and releases it at `end`, in CSS pixels of the window."""
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        self.mouse("mouseMoved", start)
        self.mouse("mousePressed", start)
        self.mouse("mouseMoved", middle)
        self.mouse("mouseMoved", end)
        self.mouse("mouseReleased", end)

    def mouse(self, kind: str, at: tuple[float, float], clicks: int = 1) -> None:
        """Sends one mouse event, such as `mouseMoved`."""
        event = {"type": kind, "x": at[0], "y": at[1], "clickCount": clicks}
        if kind != "mouseMoved":
            event["button"] = "left"
        self.send("Input.dispatchMouseEvent", event)

    def press(self, key: str) -> None:
        """Presses and releases a key, such as `ArrowRight`."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", {"type": kind, "key": key})

    def picture(self, file: Path, whole: bool = True) -> None:
        """Writes a PNG image of the whole page, or of the part in the window."""
        given = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            given["clip"] = {**size, "scale": 1}
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", given)["data"]))

    def print(self, file: Path) -> None:
        """Writes the page as a PDF, A4."""
        given = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": False}
        file.write_bytes(base64.b64decode(self.send("Page.printToPDF", given)["data"]))

    def send(self, method: str, given: Json | None = None) -> Json:
        """Sends a command to the page and returns the answer."""
        return self._call(method, given, self._session)

    def _call(self, method: str, given: Json | None = None, session: str | None = None) -> Json:
        self._next += 1
        command: Json = {"id": self._next, "method": method, "params": given or {}}
        if session:
            command["sessionId"] = session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            message = self._receive()
            if message.get("id") == self._next:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self._note(message)

    def _receive(self) -> Json:
        end = time.monotonic() + 60
        while b"\0" not in self._rest:
            readable, _, _ = select.select([self._read], [], [], max(0, end - time.monotonic()))
            piece = os.read(self._read, 1 << 20) if readable else b""
            if not piece:
                raise RuntimeError("the browser does not answer any more")
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Json) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(given["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(given["args"]))
            case "Log.entryAdded" if given["entry"]["level"] in ("error", "warning"):
                self.complaints.append(given["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])


def _started(profile: str, options: Sequence[str]) -> tuple[subprocess.Popen[bytes], int, int]:
    """Starts a browser. Returns it with the pipes for commands and for answers."""
    commands, write = os.pipe()
    read, answers = os.pipe()
    # Both get numbers above 9, because `arrange` overwrites 3 and 4.
    apart = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in (commands, answers)]
    os.close(commands)
    os.close(answers)

    def arrange() -> None:
        os.dup2(apart[0], COMMANDS)
        os.dup2(apart[1], ANSWERS)

    process = subprocess.Popen(
        [
            "chromium",
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            *options,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        close_fds=True,
        pass_fds=(COMMANDS, ANSWERS),
        preexec_fn=arrange,  # noqa: PLW1509, it has no thread yet
    )
    for fd in apart:
        os.close(fd)
    return process, write, read
