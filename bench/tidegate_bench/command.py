"""Commands of this package: `show-NAME` for each demonstration, and the tools.

A command is a link to `bench/command`. The name of the link is the name of the command.
"""

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tidegate_bench.process import exit_on_signals

PACKAGE = Path(__file__).parent
DEMONSTRATION = "show-"


def main(called: str, arguments: list[str]) -> int:
    """Runs the command of this name and returns its exit status."""
    if called.startswith(DEMONSTRATION):
        name = called.removeprefix(DEMONSTRATION)
        module = import_module(f"tidegate_bench.demonstrations.{name}")
        return int(module.Show.main(name, module.__doc__, arguments))
    if called == "show":
        print("\n".join(f"  make {DEMONSTRATION}{name:<14} {claim}" for name, claim in demonstrations()))
        return 0
    module = import_module(f"tidegate_bench.tools.{called.replace('-', '_')}")
    if arguments in (["-h"], ["--help"]) and not hasattr(module, "argparse"):
        print((module.__doc__ or "").strip())
        return 0
    return int(module.main(arguments))


def demonstrations() -> Iterator[tuple[str, str]]:
    """Yields the name and the claim of each demonstration, without importing its module."""
    for file in sorted((PACKAGE / "demonstrations").glob("[!_]*.py")):
        claim = ast.get_docstring(ast.parse(file.read_text())) or ""
        yield file.stem, claim.partition("\n")[0]


def run() -> None:
    """Runs the command by whose name this process was started."""
    exit_on_signals()
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:]))
