"""The base of tests with a folder of their own, and with captured output."""

import io
import tempfile
import unittest
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock


class Scratch(unittest.TestCase):
    """A test with its own folder. Its output is in `printed`."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="tidegate-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self._output = io.StringIO()
        capture = redirect_stdout(self._output)
        capture.__enter__()
        self.addCleanup(capture.__exit__, None, None, None)

    @property
    def printed(self) -> str:
        return self._output.getvalue()

    def failures(self, run: Callable[[], object]) -> list[str]:
        """Calls `run` and returns the conditions that it records as missed."""
        before = len(self.printed)
        run()
        lines = self.printed[before:].splitlines()
        return [line.split(maxsplit=1)[1] for line in lines if line.strip().startswith("FAIL")]

    def replace(self, target: str, value: Any) -> None:
        """Replaces a value until the test ends."""
        patch = mock.patch(target, value)
        patch.start()
        self.addCleanup(patch.stop)
