"""The ways in which callers reach an element: by a transport, and with one or many calls on a connection."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tidegate_bench.sockets import LOCALHOST

CONNECTIONS = 100
"""Number of connections in the mode `persistent`. Each belongs to one user, and stays open."""
CONNECTIONS_MAX = 8_000
"""Maximum number of connections of a run at the same time. A process may have 20,000 descriptors on this machine."""
TRANSPORTS = ("udp", "tcp", "tls")
SECURE = ("tls", "wss")
"""The transports over TLS."""
MODES = ("persistent", "each")


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate for an address, and its key."""

    file: Path
    key: Path

    @classmethod
    def make(cls, folder: Path, address: str = LOCALHOST) -> "Certificate":
        file, key, extensions = folder / "own.pem", folder / "own.key", folder / "own.cnf"
        extensions.write_text(
            "[req]\ndistinguished_name = name\nx509_extensions = more\n[name]\n[more]\n"
            f"basicConstraints = critical,CA:FALSE\nsubjectAltName = IP:{address}\n"
        )
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        words += ["-days", "2", "-subj", "/CN=tidegate", "-config", str(extensions)]
        subprocess.run([*words, "-keyout", str(key), "-out", str(file)], check=True, capture_output=True)
        return cls(file, key)

    def keys(self) -> str:
        """Returns the configuration keys that make a listener of Tidegate use both files."""
        return f'certificate = "{self.file}"\nprivate_key = "{self.key}"\n'


@dataclass(frozen=True)
class Access:
    """A transport of callers, and their use of connections."""

    transport: str
    mode: str = ""
    """`persistent`: connections stay open. `each`: each call opens its own connection. Empty over UDP."""

    @classmethod
    def all(cls, transports: list[str], modes: list[str]) -> list["Access"]:
        """Returns UDP, if listed, and each other listed transport in each mode."""
        listed = [cls(transport, mode) for transport in transports if transport != "udp" for mode in modes]
        return [cls("udp"), *listed] if "udp" in transports else listed

    def __str__(self) -> str:
        return f"{self.transport} {self.mode}".rstrip()

    @property
    def over_streams(self) -> bool:
        return self.transport != "udp"

    def options(self, certificate: Certificate | None) -> list[str]:
        """Returns the options of `tidegate load uac` for an element with this certificate."""
        if not self.over_streams:
            return []
        words = ["--transport", self.transport]
        words += ["--ca", str(certificate.file)] if certificate and self.transport == "tls" else []
        if self.mode == "each":
            return [*words, "--connections", "each"]
        return [*words, "--connections", str(CONNECTIONS), "--callers", str(CONNECTIONS)]


UDP = Access("udp")

ROOM = f"\n[connections]\naccepted_max = {CONNECTIONS_MAX}\nper_source_max = {CONNECTIONS_MAX}\n"
"""Tables with which a Tidegate accepts `CONNECTIONS_MAX` connections, although all callers have one address."""


def listener(transport: str, port: int, certificate: Certificate | None) -> str:
    """Returns the configuration of a listener of Tidegate for streams. Over TLS it needs the certificate."""
    keys = certificate.keys() if certificate and transport in SECURE else ""
    return f'\n[[listen]]\ntransport = "{transport}"\naddress = "{LOCALHOST}:{port}"\n{keys}'
