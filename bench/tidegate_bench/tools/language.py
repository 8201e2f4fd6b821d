"""Lists openings and words that scripts/language.toml rules out. The exit status is 1 if one is found

Reads the comments, string literals and function names of the Rust sources, and the prose of the documentation.

    scripts/language [PATH ...]    lists every finding, with a remedy
    scripts/language --check       the same; prints nothing if there is none
"""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tidegate_bench.record import ROOT

RULES = ROOT / "scripts/language.toml"
PROSE = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "docs/*/*.md"]
COMMENT = re.compile(r"^\s*//([/!]?) ?(.*)$")
NAME = re.compile(r"^\s*(?:\w+ )*fn (?:what|who|whose|whom|whether|how|which)_\w*")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')

Words = list[tuple[re.Pattern[str], str]]


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    text: str
    remedy: str


def rules() -> tuple[re.Pattern[str], Words]:
    rules = tomllib.loads(RULES.read_text())
    opening = re.compile(rf"(?:{'|'.join(rules['openings'])})\b")
    words = [(re.compile(rf"\b(?:{word})\b", re.I), remedy) for word, remedy in rules["words"].items()]
    return opening, words


def in_rust(name: str, source: str, opening: re.Pattern[str], words: Words) -> Iterator[Finding]:
    """Yields the findings in a source: openings of doc comments, and words in comments and literals."""
    before, fenced = "", False
    for number, line in enumerate(source.split("\n"), 1):
        comment = COMMENT.match(line)
        if comment:
            kind, text = comment.groups()
            if text.startswith("```"):
                fenced = not fenced
            if kind and not COMMENT.match(before) and opening.match(text):
                yield Finding(name, number, text, "begin with the actor, a noun or a verb")
            # Quotations from RFCs are not checked.
            if not fenced and not text.lstrip().startswith(('"', ">")):
                yield from in_text(name, number, text, words)
        else:
            if name_of := NAME.match(line):
                yield Finding(name, number, name_of.group().strip(), "name the actor or the thing")
            for literal in STRING.findall(line):
                # Only texts with spaces are messages.
                if " " in literal:
                    yield from in_text(name, number, literal, words)
        before = line


def in_prose(name: str, source: str, words: Words) -> Iterator[Finding]:
    fenced = False
    for number, line in enumerate(source.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        if not fenced and not line.startswith((">", "    ")):
            yield from in_text(name, number, re.sub(r"`[^`]*`", "", line), words)


def in_text(name: str, number: int, text: str, words: Words) -> Iterator[Finding]:
    for word, remedy in words:
        for match in word.finditer(text):
            yield Finding(name, number, f"{match.group()}: {text.strip()}", remedy)


def findings(paths: list[str]) -> Iterator[Finding]:
    opening, words = rules()
    for path in sorted(ROOT.glob("crates/*/**/*.rs")):
        if wanted(path, paths):
            yield from in_rust(str(path.relative_to(ROOT)), path.read_text(), opening, words)
    for pattern in PROSE:
        for path in sorted(ROOT.glob(pattern)):
            # Decisions are not changed after they were taken.
            if "decisions" not in path.parts and wanted(path, paths):
                yield from in_prose(str(path.relative_to(ROOT)), path.read_text(), words)


def wanted(path: Path, paths: list[str]) -> bool:
    return not paths or any(path.is_relative_to(Path(one).resolve()) for one in paths)


def main(args: list[str]) -> int:
    found = list(findings([arg for arg in args if arg != "--check"]))
    for finding in found:
        print(f"{finding.path}:{finding.line}: {finding.text}\n    {finding.remedy}")
    if "--check" not in args:
        print(f"{len(found)} hard sentences")
    return 1 if found else 0
