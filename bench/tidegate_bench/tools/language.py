"""Hard sentences: openings and words that scripts/language.toml rules out; `--check` fails on a new one

Reads the comments and string literals of the Rust sources, and the prose of the documentation.
`scripts/language-allowed.txt` has how many findings a file may
still have: the check fails if a file has more, and also if it has fewer, so that the list only shrinks.

    scripts/language [PATH ...]    every finding, with the word to use instead
    scripts/language --check       only files that differ from the allowed number; exit status 1 if any does
    scripts/language --shrink      lowers the allowed numbers to what was found; never raises one
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidegate_bench.record import ROOT

RULES = ROOT / "scripts/language.toml"
ALLOWED = ROOT / "scripts/language-allowed.txt"
PROSE = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/*.md", "docs/*/*.md"]
FIELD = re.compile(r"^\s*(?:pub(?:\([a-z]+\))? )?[a-z_]\w*: ")
COMMENT = re.compile(r"^\s*//([/!]?) ?(.*)$")
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
    """Findings in a source: first lines of doc comments, and words of comments and literals."""
    before, fenced = "", False
    lines = source.split("\n")
    for number, line in enumerate(lines, 1):
        comment = COMMENT.match(line)
        if comment:
            kind, text = comment.groups()
            if text.startswith("```"):
                fenced = not fenced
            if kind and not COMMENT.match(before) and opening.match(text) and not is_flag(lines, number):
                yield Finding(name, number, text, "begin with the actor, a noun or a verb")
            # An RFC is quoted as it stands.
            if not fenced and not text.lstrip().startswith(('"', ">")):
                yield from in_text(name, number, text, words)
        else:
            for literal in STRING.findall(line):
                # Words of a message, not of the wire or of a name.
                if " " in literal:
                    yield from in_text(name, number, literal, words)
        before = line


def is_flag(lines: list[str], number: int) -> bool:
    """The comment in this line is of a field and begins with `Whether`, as one of a boolean may."""
    item = next((line for line in lines[number:] if not COMMENT.match(line) and not line.lstrip().startswith("#[")), "")
    return "/ Whether " in lines[number - 1] and bool(FIELD.match(item))


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
            # Decisions are kept as they were taken.
            if "decisions" not in path.parts and wanted(path, paths):
                yield from in_prose(str(path.relative_to(ROOT)), path.read_text(), words)


def wanted(path: Path, paths: list[str]) -> bool:
    return not paths or any(path.is_relative_to(Path(one).resolve()) for one in paths)


def counted(found: Iterable[Finding]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for finding in found:
        counts[finding.path] = counts.get(finding.path, 0) + 1
    return counts


def allowed() -> dict[str, int]:
    lines = ALLOWED.read_text().split("\n") if ALLOWED.exists() else []
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {path: int(number) for path, number in pairs}


def check() -> int:
    counts, may, wrong = counted(findings([])), allowed(), 0
    for path in sorted(counts.keys() | may.keys()):
        has, limit = counts.get(path, 0), may.get(path, 0)
        if has > limit:
            print(f"{path}: {has} hard sentences, {limit} allowed: see `scripts/language {path}`")
        elif has < limit:
            print(f"{path}: {has} hard sentences, {limit} allowed: run `scripts/language --shrink`")
        wrong += has != limit
    return 1 if wrong else 0


def shrink() -> int:
    counts, may = counted(findings([])), allowed()
    # The first list is what there is.
    kept = {path: min(count, may.get(path, count if not may else 0)) for path, count in counts.items()}
    head = "# Hard sentences that a file may still have. Numbers only fall: `scripts/language --shrink`.\n"
    lines = (f"{path} {count}\n" for path, count in sorted(kept.items()) if count)
    ALLOWED.write_text(head + "".join(lines))
    return 0


def show(paths: list[str]) -> int:
    found = list(findings(paths))
    for finding in found:
        print(f"{finding.path}:{finding.line}: {finding.text}\n    {finding.remedy}")
    print(f"{len(found)} hard sentences")
    return 0


def main(args: list[str]) -> int:
    if args == ["--check"]:
        return check()
    if args == ["--shrink"]:
        return shrink()
    return show(args)
