"""How callers reach an element: the transport, and their use of connections."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tidegate_bench.sockets import LOCALHOST

CONNECTIONS = 100
"""Connections that stay open, each of one user."""
# A run over streams has at most so many connections at once. A process may have 20,000 descriptors on this machine.
CONNECTIONS_MAX = 8_000
TRANSPORTS = ("udp", "tcp", "tls")
SECURE = ("tls", "wss")
"""The transports over TLS."""
MODES = ("persistent", "each")


@dataclass(frozen=True)
class Certificate:
    """A certificate for this machine, which is its own authority, and its key."""

    file: Path
    key: Path

    @classmethod
    def make(cls, folder: Path) -> "Certificate":
        file, key, extensions = folder / "own.pem", folder / "own.key", folder / "own.cnf"
        extensions.write_text(
            "[req]\ndistinguished_name = name\nx509_extensions = more\n[name]\n[more]\n"
            f"basicConstraints = critical,CA:FALSE\nsubjectAltName = IP:{LOCALHOST}\n"
        )
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        words += ["-days", "2", "-subj", "/CN=tidegate", "-config", str(extensions)]
        subprocess.run([*words, "-keyout", str(key), "-out", str(file)], check=True, capture_output=True)
        return cls(file, key)

    def keys(self) -> str:
        """The keys of a listener of Tidegate."""
        return f'certificate = "{self.file}"\nprivate_key = "{self.key}"\n'


@dataclass(frozen=True)
class Access:
    """A transport of callers, and their use of connections."""

    transport: str
    mode: str = ""
    """`persistent`: connections stay open. `each`: each call has one. Empty over UDP."""

    @classmethod
    def all(cls, transports: list[str], modes: list[str]) -> list["Access"]:
        """UDP, and each other transport in each mode."""
        listed = [cls(transport, mode) for transport in transports if transport != "udp" for mode in modes]
        return [cls("udp"), *listed] if "udp" in transports else listed

    def __str__(self) -> str:
        return f"{self.transport} {self.mode}".rstrip()

    @property
    def over_streams(self) -> bool:
        return self.transport != "udp"

    def options(self, certificate: Certificate | None) -> list[str]:
        """The options of `tidegate load uac`, before an element that has this certificate."""
        if not self.over_streams:
            return []
        words = ["--transport", self.transport]
        words += ["--ca", str(certificate.file)] if certificate and self.transport == "tls" else []
        if self.mode == "each":
            return [*words, "--connections", "each"]
        return [*words, "--connections", str(CONNECTIONS), "--callers", str(CONNECTIONS)]


UDP = Access("udp")


def listener(transport: str, port: int, certificate: Certificate | None) -> str:
    """The table of a listener of Tidegate for streams. Over TLS it needs the certificate."""
    keys = certificate.keys() if certificate and transport in SECURE else ""
    return f'\n[[listen]]\ntransport = "{transport}"\naddress = "{LOCALHOST}:{port}"\n{keys}'
