"""Lists which sentences of the RFCs with MUST or SHOULD are quoted above the code and above a test

A comment that quotes an RFC cites it: `RFC 3261 §16.6: "The proxy MUST ..."`. Without a number, `§16.6` belongs to the
RFC that the documentation of the file names first. This command finds the sentence in `docs/requirements/rfcNNNN.toml`.
A citation in a test (a file below `tests/`, or a file or a module of unit tests) proves the sentence. A citation
elsewhere shows where the sentence is implemented. `docs/requirements/exceptions.toml` gives a reason for each sentence
that does not apply to Tidegate, that needs a part that is not built yet, or that Tidegate breaks on purpose.

    scripts/requirements              coverage by section
    scripts/requirements --open       also each sentence that lacks code, a test or a reason
    scripts/requirements --check      exit status 1 if a quotation is not in the RFC, if a reason is for
                                      nothing or for a proven sentence, or if docs/requirements/README.md
                                      is out of date
    scripts/requirements --write      writes docs/requirements/README.md
    scripts/requirements --extract RFC.txt SECTIONS > docs/requirements/rfcNNNN.toml
                                      the sentences of an RFC, SECTIONS such as 16,17,18
"""

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tidegate_bench.record import ROOT

FOLDER = ROOT / "docs/requirements"
LEVELS = ("MUST", "SHOULD")
# The kinds of exceptions: a duty of others or a replaced rule, a missing part, or a decision.
KINDS = ("not ours", "not built", "on purpose")
STATES = ("proven", "tested", "implemented", "open", *KINDS)
KEYWORD = re.compile(r"\b(MUST|REQUIRED|SHALL|SHOULD|RECOMMENDED)\b")
REFERENCE = re.compile(r'(?:RFC (\d+),? )?§(\d+(?:\.\d+)*)|RFC (\d+)|"([^"]+)"')
# Only an item of the file begins its tests. A field that only tests use does not.
TESTS_BEGIN = re.compile(r"^#\[cfg\(test\)\]")
# The minimum number of consecutive words that a quotation shares with its sentence.
SHARED = 6


@dataclass
class Requirement:
    rfc: int
    section: str
    number: int
    level: str
    text: str
    code: list[str] = field(default_factory=list)
    tests: list[str] = field(default_factory=list)
    kind: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.rfc} §{self.section} ({self.number})"

    @property
    def state(self) -> str:
        if self.kind:
            return self.kind
        if self.tests and self.code:
            return "proven"
        return "tested" if self.tests else "implemented" if self.code else "open"


@dataclass(frozen=True)
class Citation:
    place: str
    is_test: bool
    rfc: int
    section: str
    quotation: str


def words(text: str) -> list[str]:
    """Returns the words of a text without marks and in lower case, so that two copies of a sentence are equal."""
    return re.sub(r"[^a-z0-9]+", " ", text.lower()).split()


def shares(piece: list[str], text: list[str]) -> bool:
    """Returns whether a piece of a quotation and a sentence overlap: one contains the other, or begins with the end
    of the other. The common words include the keyword, so two sentences with the same phrase differ."""
    for offset in range(SHARED - len(piece), len(text) - SHARED + 1):
        begin, end = max(offset, 0), min(offset + len(piece), len(text))
        common = text[begin:end]
        if (
            len(common) >= min(SHARED, len(text))
            and common == piece[begin - offset : end - offset]
            and KEYWORD.search(" ".join(common).upper())
        ):
            return True
    return False


def requirements() -> list[Requirement]:
    found = []
    for file in sorted(FOLDER.glob("rfc*.toml")):
        numbers: dict[str, int] = defaultdict(int)
        for entry in tomllib.loads(file.read_text())["requirement"]:
            numbers[entry["section"]] += 1
            number = numbers[entry["section"]]
            found.append(Requirement(int(file.stem[3:]), entry["section"], number, entry["level"], entry["text"]))
    return found


def citations() -> Iterator[Citation]:
    for file in sorted(ROOT.glob("crates/*/**/*.rs")):
        name = file.relative_to(ROOT)
        in_tests = "tests" in name.parts or file.stem == "tests" or file.stem.endswith("_tests")
        block: list[str] = []
        first = 0
        text = file.read_text()
        of_file = re.search(r"^//!.*?RFC\s(?://!\s)?(\d+)", text, re.M)
        rfc = int(of_file[1]) if of_file else 0
        for number, line in enumerate([*text.split("\n"), ""], 1):
            in_tests = in_tests or bool(TESTS_BEGIN.match(line))
            comment = re.match(r"^\s*//[/!]? ?(.*)$", line)
            if comment:
                first = first if block else number
                block.append(comment[1])
            elif block:
                yield from cited(f"{name}:{first}", in_tests, rfc, " ".join(block))
                block = []


def cited(place: str, is_test: bool, rfc: int, text: str) -> Iterator[Citation]:
    section = None
    # Remove the marks around single words within a quotation, as in: the "Completed" state.
    text = re.sub(r'"([\w-]+(?: [\w-]+)?)"', r"\1", text)
    for match in REFERENCE.finditer(text):
        with_section, its_section, alone, quotation = match.groups()
        if quotation is None:
            rfc = int(with_section or alone or rfc or 0)
            section = its_section or (None if alone else section)
        elif rfc and section and KEYWORD.search(quotation):
            yield Citation(place, is_test, rfc, section, quotation)


def matches(citation: Citation, requirement: Requirement) -> bool:
    if citation.rfc != requirement.rfc:
        return False
    same = requirement.section == citation.section
    if not (same or requirement.section.startswith(citation.section + ".")):
        return False
    text = words(requirement.text)
    return any(shares(words(piece), text) for piece in re.split(r"\[\.\.\.\]|\.\.\.", citation.quotation))


def connect(requirements: list[Requirement]) -> list[Citation]:
    """Adds its citations to each requirement. Returns the citations that belong to none."""
    covered = {(one.rfc, one.section.split(".")[0]) for one in requirements}
    stray = []
    for citation in citations():
        if (citation.rfc, citation.section.split(".")[0]) not in covered:
            continue
        found = [one for one in requirements if matches(citation, one)]
        for requirement in found:
            (requirement.tests if citation.is_test else requirement.code).append(citation.place)
        if not found:
            stray.append(citation)
    return stray


def except_some(requirements: list[Requirement]) -> list[str]:
    """Adds their reasons to requirements. Returns the errors in the reasons."""
    wrong = []
    for entry in tomllib.loads((FOLDER / "exceptions.toml").read_text()).get("exception", []):
        if entry["kind"] not in KINDS:
            wrong.append(f"{entry['kind']!r} is none of {', '.join(KINDS)}")
        for begins in entry["begins"]:
            found = [
                one
                for one in requirements
                if (one.rfc, one.section) == (entry["rfc"], entry["section"]) and one.text.startswith(begins)
            ]
            where = f"RFC {entry['rfc']} §{entry['section']}: {begins!r}"
            if len(found) != 1:
                wrong.append(f"{where} begins {len(found)} sentences")
            for requirement in found:
                if requirement.state == "proven" or requirement.kind:
                    wrong.append(f"{where} is {requirement.state} already")
                requirement.kind, requirement.reason = entry["kind"], entry["reason"]
    return wrong


def table(requirements: list[Requirement]) -> Iterator[tuple[str, ...]]:
    groups: dict[tuple[int, str, str], list[str]] = defaultdict(list)
    for one in requirements:
        groups[one.rfc, ".".join(one.section.split(".")[:2]), one.level].append(one.state)
    yield ("RFC", "section", "level", "sentences", *STATES)
    for rfc, section, level in sorted(groups, key=lambda key: (key[0], list(map(int, key[1].split("."))), key[2])):
        group = groups[rfc, section, level]
        yield (str(rfc), section, level, str(len(group)), *(str(group.count(state)) for state in STATES))
    for level in LEVELS:
        group = [one.state for one in requirements if one.level == level]
        yield ("all", "", level, str(len(group)), *(str(group.count(state)) for state in STATES))


def columns(rows: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        left = "  ".join(cell.ljust(width) for cell, width in zip(row[:3], widths[:3], strict=True))
        yield left + "  " + "  ".join(cell.rjust(width) for cell, width in zip(row[3:], widths[3:], strict=True))


def unproven(requirements: list[Requirement], level: str) -> list[Requirement]:
    return [one for one in requirements if one.level == level and one.state in ("open", "implemented", "tested")]


def page(requirements: list[Requirement]) -> str:
    """Returns the text of docs/requirements/README.md."""
    rows = list(table(requirements))
    text = HEAD + "| " + " | ".join(rows[0]) + " |\n|" + " --- |" * len(rows[0]) + "\n"
    text += "".join("| " + " | ".join(row) + " |\n" for row in rows[1:])
    text += "\n## MUSTs that are not proven\n\n"
    left = unproven(requirements, "MUST")
    text += "" if left else "None.\n"
    for one in left:
        where = f" Code: {', '.join(sorted({place.rsplit(':', 1)[0] for place in one.code}))}." if one.code else ""
        text += f'- RFC {one.name}, {one.state}: "{one.text}"{where}\n'
    for kind, title in (("on purpose", "MUSTs that Tidegate breaks on purpose"), ("not built", "MUSTs not built yet")):
        text += f"\n## {title}\n"
        of_kind = [one for one in requirements if one.level == "MUST" and one.kind == kind]
        for reason in dict.fromkeys(one.reason for one in of_kind):
            text += f"\n{reason}\n\n"
            text += "".join(f'- RFC {one.name}: "{one.text}"\n' for one in of_kind if one.reason == reason)
    return text


HEAD = """\
# Requirements

`scripts/requirements --write` writes this page, and `make requirements` prints the table. The table counts the
sentences with MUST and SHOULD in the parts of the RFCs that a proxy and a transaction layer implement. A sentence is

- *proven* if comments quote it above code and above a test, *implemented* if only above code, *tested* if only above a
  test;
- *not ours*, *not built* yet, or broken *on purpose*, if [exceptions.toml](exceptions.toml) gives this reason. *Not
  ours* is the duty of another element, a feature that Tidegate does not offer, or a rule that a later RFC replaces;
- *open* in all other cases. Tidegate may obey an open sentence, but no quotation shows it.

"""


def extract(rfc: int, text: str, sections: list[str]) -> Iterator[str]:
    """Returns the lines of `docs/requirements/rfcNNNN.toml`, from the text of the RFC."""
    # Remove page breaks (footer, form feed, header), so that a paragraph on two pages is one paragraph.
    text = re.sub(r"\n+[^\n]*\[Page \d+\]\n\f?\n*(?:RFC \d+[^\n]*\n)?\n*", "\n\f\n", text)
    text = re.sub(r"(?<![.:;])\n\f\n(?=\s*(?!o )\w)|\n\f\n(?=\s*(?!o )[a-z])", "\n", text).replace("\f", "")
    heading = re.compile(r"^(\d+(?:\.\d+)*)\.? +\S[^\n]*$", re.M)
    # Skip the table of contents, which has each heading too, indented or with dots.
    body = [match for match in heading.finditer(text) if "...." not in match[0]]
    yield f"# Sentences of RFC {rfc} with MUST or SHOULD, sections {', '.join(sections)}."
    command = f"scripts/requirements --extract rfc{rfc}.txt {','.join(sections)}"
    yield f"# {command}; the RFC is by its authors and the IETF Trust."
    for this, following in zip(body, [*body[1:], None], strict=True):
        section = this[1]
        if section.split(".")[0] not in sections:
            continue
        part = text[this.end() : following.start() if following else len(text)]
        for paragraph in re.split(r"\n\s*\n", part):
            flat = re.sub(r"\s+", " ", paragraph).strip()
            for sentence in re.split(r"(?<=[.:;])\s+(?=[A-Z])", flat):
                keywords = set(KEYWORD.findall(sentence))
                if keywords:
                    first = next(KEYWORD.finditer(sentence))[1]
                    is_must = "MUST" in keywords or first in ("REQUIRED", "SHALL")
                    quoted = sentence.replace("\\", "\\\\").replace('"', '\\"')
                    level = "MUST" if is_must else "SHOULD"
                    yield f'\n[[requirement]]\nsection = "{section}"\nlevel = "{level}"\ntext = "{quoted}"'


def main(args: list[str]) -> int:
    if args[:1] == ["--extract"]:
        rfc, text = int(Path(args[1]).stem.removeprefix("rfc")), Path(args[1]).read_text()
        print("\n".join(extract(rfc, text, args[2].split(","))))
        return 0
    found = requirements()
    stray, idle = connect(found), except_some(found)
    readme = FOLDER / "README.md"
    if args == ["--write"]:
        readme.write_text(page(found))
        return 0
    if args == ["--check"]:
        wrong = [f"{one.place}: not in RFC {one.rfc} §{one.section}: {one.quotation}" for one in stray]
        wrong += [f"docs/requirements/exceptions.toml: {line}" for line in idle]
        if not readme.exists() or readme.read_text() != page(found):
            wrong.append("docs/requirements/README.md is out of date: run scripts/requirements --write")
        print("\n".join(wrong), end="\n" if wrong else "")
        return 1 if wrong else 0
    print("\n".join(columns(list(table(found)))))
    if args == ["--open"]:
        for one in found:
            if one.state in ("open", "implemented", "tested"):
                print(f"\nRFC {one.name}, {one.level}, {one.state}\n    {one.text}")
    return 0
