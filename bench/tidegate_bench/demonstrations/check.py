"""Ten broken configurations: each is rejected with the line, the error and the remedy

`tidegate check` must end with status 2, name the file and the line, show the wrong text and say how to correct it.
`tidegate run` must reject the same file in the same way.
"""

import subprocess
from typing import NamedTuple

from tidegate_bench import sockets, tidegate
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.process import Stage

REJECTED = 2
GOOD = """\
[server]
shards = 1

[[listen]]
transport = "udp"
address = "127.0.0.1:PORT"

[[pool]]
name = "app"
policy = "rr"
[[pool.backend]]
uri = "sip:127.0.0.1:5070"
[[pool.backend]]
uri = "sip:127.0.0.1:5071"
"""


class Broken(NamedTuple):
    name: str
    replaced: str
    by: str
    line: int
    offending: str
    """The text that the message must show."""


BROKEN = [
    Broken("an unknown key", 'policy = "rr"', 'polcy = "rr"', 10, "polcy"),
    Broken("an unknown policy", '"rr"', '"roundrobin"', 10, "roundrobin"),
    Broken("a wrong type", "shards = 1", 'shards = "one"', 2, '"one"'),
    Broken("an impossible value", "shards = 1", "shards = 0", 2, "shards = 0"),
    Broken("a port out of range", "127.0.0.1:PORT", "127.0.0.1:70000", 6, "70000"),
    Broken("a back end that is no SIP URI", "sip:127.0.0.1:5071", "http://127.0.0.1", 14, "http:"),
    Broken("the same back end twice", "127.0.0.1:5071", "127.0.0.1:5070", 14, "127.0.0.1:5070"),
    Broken("a back end that is Tidegate itself", "127.0.0.1:5071", "127.0.0.1:PORT", 14, "PORT"),
    Broken("a quote that is not closed", 'name = "app"', 'name = "app', 9, 'name = "app'),
    Broken("a table that does not exist", "[server]", "[sever]", 1, "sever"),
]


def run(*arguments: str) -> tuple[int, str]:
    command = [tidegate.built("tidegate"), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except subprocess.TimeoutExpired as late:
        return -1, (late.stderr or b"").decode(errors="replace")
    return done.returncode, done.stdout + done.stderr


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        with Stage() as stage:
            port = str(sockets.free_port())
            good = stage.directory / "good.toml"
            good.write_text(GOOD.replace("PORT", port))
            status, text = run("check", str(good))
            print(f"\na good configuration\n{text}")
            self.expect(status == 0, f"it is accepted (status {status})")

            for number, case in enumerate(BROKEN, start=1):
                file = stage.directory / f"{number:02}-{case.name.replace(' ', '-')}.toml"
                assert GOOD.count(case.replaced) == 1, case.name
                file.write_text(GOOD.replace(case.replaced, case.by).replace("PORT", port))
                offending = case.offending.replace("PORT", port)

                status, text = run("check", str(file))
                print(f"\n{number}. {case.name}\n{text}")
                self.keep(file)
                self.text(f"{file.stem}.txt", text)
                self.expect(status == REJECTED, f"check rejects it (status {status})")
                self.expect(f"{file.name}:{case.line}:" in text, f"the message names line {case.line}")
                self.expect(offending in text, f"the message shows {offending}")
                self.expect("help: " in text, "the message says how to correct it")

                status, text = run("run", "--config", str(file))
                self.expect(
                    status == REJECTED and f"{file.name}:{case.line}:" in text, f"run rejects it too (status {status})"
                )
        return {}
