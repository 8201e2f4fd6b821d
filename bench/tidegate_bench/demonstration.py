"""A demonstration: a claim, and a run that tests it."""

import argparse
from collections.abc import Mapping
from typing import Any, ClassVar

from tidegate_bench.record import Record

Results = Mapping[str, Any]


class Demonstration(Record):
    """A claim that is tested, and the record of its run.

    A module of `demonstrations` has one subclass, `Show`. The first line of the module's documentation is the claim.
    `Show` runs, prints results and records its expectations. The exit status is 0 if all of them are met.
    """

    ROUNDS: ClassVar[int | None] = 3
    """Default of `--rounds`, or `None` if there is no such option. Each round has its own seed."""
    PROFILE: ClassVar[str | None] = None
    """Default of `--profile`, the build under test, or `None` if there is no choice."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        super().__init__("show", name)
        self.options = options

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Adds options beside `--rounds` and `--profile`."""

    @classmethod
    def prepare(cls, options: argparse.Namespace) -> None:
        """Prepares this process before the record is made, or ends it if something needed is missing."""

    def run(self) -> Results:
        """Runs the demonstration. Returns the content of result.json besides options and conditions."""
        raise NotImplementedError

    @property
    def rounds(self) -> range:
        """The numbers of the rounds. The number of a round is also its seed."""
        return range(1, self.options.rounds + 1)

    @property
    def profile(self) -> str:
        """Folder of the build under test, `debug` (optimised too) or `release`."""
        return str(self.options.profile)

    @classmethod
    def main(cls, name: str, claim: str, arguments: list[str]) -> int:
        """Parses the arguments, runs the demonstration and returns its exit status."""
        first, _, rest = claim.partition("\n")
        parser = argparse.ArgumentParser(
            prog=f"show-{name}",
            description=first,
            epilog=rest.strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if cls.ROUNDS is not None:
            parser.add_argument(
                "--rounds",
                "--seeds",
                type=int,
                default=cls.ROUNDS,
                help="number of rounds, each with its own seed (default %(default)s)",
            )
        if cls.PROFILE is not None:
            parser.add_argument(
                "--profile",
                choices=("release", "debug"),
                default=cls.PROFILE,
                help="build of the program (default %(default)s)",
            )
        cls.arguments(parser)
        options = parser.parse_args(arguments)
        if cls.ROUNDS is not None and options.rounds < 1:
            parser.error("--rounds must be at least 1")
        cls.prepare(options)
        demonstration = cls(name, options)
        return demonstration.finish(**{"options": vars(options), **demonstration.run()})
