"""Tests that every file and every heading to which the documentation links exists."""

import re
import subprocess
import unittest
from pathlib import Path

from tidegate_bench.record import ROOT

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code(page.read_text()), re.M)
    names: dict[str, int] = {}
    for heading in headings:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        names[name] = names.get(name, 0) + 1
    return {name if n == 0 else f"{name}-{n}" for name, count in names.items() for n in range(count)}


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def broken(page: Path) -> list[str]:
    wrong = []
    for match in LINK.finditer(re.sub(r"`[^`\n]*`", "", without_code(page.read_text()))):
        link = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists():
            wrong.append(f"{page.relative_to(ROOT)}: {link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{page.relative_to(ROOT)}: {link}: no such heading")
    return wrong


class LinksTest(unittest.TestCase):
    def test_links_lead_to_files_and_headings(self) -> None:
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
        pages = [ROOT / name for name in listed.stdout.split()]
        self.assertGreater(len(pages), 50)
        self.assertEqual([wrong for page in pages if page.exists() for wrong in broken(page)], [])

    def test_missing_headings_are_found(self) -> None:
        self.assertIn("checks-and-rejections", anchors(ROOT / "ARCHITECTURE.md"))
        self.assertNotIn("checks", anchors(ROOT / "ARCHITECTURE.md"))
