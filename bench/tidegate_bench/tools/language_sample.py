"""Draws texts at random, for a reader who did not write them and judges whether each is plain

    scripts/language-sample SEED            60 doc comments, 20 error messages, 20 help texts, 10 pages
    scripts/language-sample SEED --kind help

The same seed and the same sources give the same sample. Mark each text plain or not plain, and rewrite those that
are not.
"""

import argparse
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tidegate_bench.record import ROOT

Text = tuple[Path, int, str]

NUMBERS = {"comment": 60, "error": 20, "help": 20, "page": 10}
# A string literal. Anything else that may contain a quote is matched too, so that this quote begins no literal.
LITERAL = re.compile(
    r"""
    //[^\n]*                                   # a comment
    | '(?:[^'\\\n]|\\[^\n]{1,9}?)'            # a character
    | \bb?r(?P<hashes>\#*)".*?"(?P=hashes)     # a raw string
    | \b[bc]"(?:[^"\\]|\\.)*"                 # a byte string or a C string
    | "(?P<text>(?:[^"\\]|\\.)*)"             # a string
    """,
    re.S | re.X,
)
# The parenthesis that opens the arguments of a call whose texts only a bug or a test shows.
HIDES = re.compile(r"(expect|unreachable!|panic!|assert\w*!)\s*\($")
# The line of code before a literal that is help.
EXPLAINS = re.compile(r"((doc|summary): |\.doc\(\s*)$")
PROGRAMS = "crates/tidegate/src"
# Derives of items whose doc comments clap shows as help.
HELPFUL = re.compile(r"#\[derive\([^]]*\b(clap::\w+|Args|Parser|Subcommand|ValueEnum)\b")
# Crates whose messages operators read.
SPEAKING = ("crates/server/src", "crates/io/src", PROGRAMS)


def sources() -> Iterator[tuple[Path, str]]:
    for path in sorted(ROOT.glob("crates/*/src/**/*.rs")):
        if "tests" not in str(path.relative_to(ROOT)):
            yield path.relative_to(ROOT), path.read_text().split("#[cfg(test)]\nmod tests", 1)[0]


def doc_blocks(text: str) -> Iterator[tuple[int, str]]:
    """Returns doc comments with the line where they begin."""
    block: list[str] = []
    first = 0
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"\s*//[/!] ?(.*)", line)
        if match:
            first = first if block else number
            block.append(match.group(1))
        elif block:
            yield first, "\n".join(block)
            block = []


def comments() -> list[Text]:
    """Returns doc comments, each with the item that it describes, as a reader of the source sees them.

    The doc comments that clap shows are left out: they are help.
    """
    found: list[Text] = []
    for path, source in sources():
        lines = source.split("\n")
        for line, text in doc_blocks(source):
            if not is_help(path, lines, line, text):
                found.append((path, line, text + item(lines, line, text)))
    return found


def is_help(path: Path, lines: list[str], first: int, text: str) -> bool:
    """Returns whether clap shows a doc comment: it describes a type with a derive of clap, or a part of such a type."""
    if not str(path).startswith(PROGRAMS) or lines[first - 1].lstrip().startswith("//!"):
        return False
    outside, described = around(lines, first, text)
    return any(HELPFUL.search(attributes(lines, index)) for index in (outside, described) if index is not None)


def item(lines: list[str], first: int, text: str) -> str:
    """Returns the item that a doc comment describes, after the item that contains it.

    Returns nothing if the comment describes its file.
    """
    if lines[first - 1].lstrip().startswith("//!"):
        return ""
    return "".join(f"\n    | {lines[index]}" for index in around(lines, first, text) if index is not None)


def around(lines: list[str], first: int, text: str) -> tuple[int | None, int | None]:
    """Returns the indices of two lines: of the item that contains a doc comment, and of the item that it describes."""
    described: int | None = None
    depth = 0
    for index in range(first + text.count("\n"), len(lines)):
        line = lines[index].strip()
        if depth > 0 or line.startswith("#["):
            # An attribute may have several lines.
            depth += line.count("[") - line.count("]")
        elif line and not line.startswith("//"):
            described = index
            break
    if described is None:
        return None, None
    indent = len(lines[described]) - len(lines[described].lstrip())
    outside = next((index for index in range(first - 2, -1, -1) if opens(lines[index], indent)), None)
    return outside, described


def attributes(lines: list[str], index: int) -> str:
    """Returns the lines directly above an item: its attributes and its comment."""
    first = index
    while first > 0 and lines[first - 1].strip() not in ("", "}"):
        first -= 1
    return "\n".join(lines[first:index])


def opens(line: str, indent: int) -> bool:
    """Returns whether the line begins an item that contains lines with this indentation."""
    outer = len(line) - len(line.lstrip())
    return (
        outer < indent
        and re.match(r"\s*(pub(\([^)]*\))? )?(const |unsafe )*(struct|enum|impl|trait|mod|fn)\b", line) is not None
    )


def literals(source: str) -> Iterator[tuple[int, str, str]]:
    """Yields string literals of at least three words, each with its line and the line of code before it.

    Leaves out the literals that only a bug or a test shows, such as the message of an `assert!`.
    """
    # For each open parenthesis, whether its texts are hidden.
    hidden: list[bool] = []
    end = 0
    for match in LITERAL.finditer(source):
        for bracket in re.finditer(r"[()]", source[end : match.start()]):
            opened = end + bracket.end()
            if bracket[0] == "(":
                hidden.append(HIDES.search(source[max(0, opened - 40) : opened]) is not None)
            elif hidden:
                hidden.pop()
        end = match.end()
        if match["text"] is None or any(hidden):
            continue
        code = source[: match.start()]
        before = code[code.rstrip().rfind("\n") + 1 :]
        text = re.sub(r"\\\n\s*", "", match["text"])
        words = re.findall(r"(?<![\w/-])[A-Za-z]{2,}(?![\w/])", re.sub(r"\{[^}]*\}", "", text))
        if len(words) >= 3 and " " in text.strip():
            yield source.count("\n", 0, match.start()) + 1, before, text


def helps() -> list[Text]:
    """Returns the help of commands and options (doc comments for clap), and texts about keys, laws and metrics."""
    found: list[Text] = []
    for path, source in sources():
        found += [
            (path, line, text)
            for line, before, text in literals(source)
            if EXPLAINS.search(before) or "/collect/" in str(path)
        ]
    for path, source in sources():
        lines = source.split("\n")
        found += [(path, line, text) for line, text in doc_blocks(source) if is_help(path, lines, line, text)]
    return found


def errors() -> list[Text]:
    """Returns string literals with words that operators may read."""
    found: list[Text] = []
    for path, source in sources():
        if not str(path).startswith(SPEAKING) or "/collect/" in str(path) or "/tables/" in str(path):
            continue
        found += [(path, line, text) for line, before, text in literals(source) if not EXPLAINS.search(before)]
    return found


def pages() -> list[Text]:
    """Returns sections of the documentation."""
    found: list[Text] = []
    for pattern in ("*.md", "docs/*.md", "docs/*/*.md"):
        for path in sorted(ROOT.glob(pattern)):
            for line, part in sections(path.read_text()):
                if len(part.split()) > 40:
                    found.append((path.relative_to(ROOT), line, part.strip()))
    return found


def sections(text: str) -> Iterator[tuple[int, str]]:
    """Yields the parts that begin with a heading of level 1 or 2, and the part before them, each with its line.

    A line of a code block is not a heading, even if it begins with `#`.
    """
    lines, first, fenced = text.splitlines(), 0, False
    for number, line in enumerate(lines):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith(("# ", "## ")):
            yield first + 1, "\n".join(lines[first:number])
            first = number
    yield first + 1, "\n".join(lines[first:])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("--kind", choices=NUMBERS, help="only this kind of text")
    args = parser.parse_args(arguments)
    drawn: dict[str, Callable[[], list[Text]]] = {"comment": comments, "error": errors, "help": helps, "page": pages}
    for kind, number in NUMBERS.items():
        if args.kind in (None, kind):
            texts = drawn[kind]()
            chosen = random.Random(f"{args.seed} {kind}").sample(texts, min(number, len(texts)))
            print(f"\n=== {kind}: {len(chosen)} of {len(texts)}")
            for index, (path, line, text) in enumerate(chosen, 1):
                print(f"\n{kind} {index}. {path}:{line}\n{text}")
    return 0
