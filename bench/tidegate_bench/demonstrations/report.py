"""A report is one page that draws, zooms and shows its values in a browser, and loads nothing else

A small scenario is run in simulated time and on real sockets, and both results are put into one report. Debian's
Chromium opens it. Charts are drawn in light and dark colours, zoomed, hidden, and read by pointer and by keyboard.
Tables are sorted, and the page is printed. Screenshots are kept beside the raw data. This takes half a minute.
"""

import json
from pathlib import Path
from typing import Any

from tidegate_bench import program
from tidegate_bench.browser import Browser
from tidegate_bench.demonstration import Demonstration, Results
from tidegate_bench.record import Record

SCENARIO = """\
title = "Two laws, small"
[emulate]
offer_us = 100
serve_us = 733
reject_us = 200
[sweep]
load = [0.5, 1, 2, 4]
[schedule]
warm_up_s = 1
measured_s = 2
repetitions = 2
[[variant]]
overload = { law = "none", decide = "service", queue = "fifo", sticky = false }
[[variant]]
overload = { law = "none" }
[[variant]]
overload = { law = "pi" }
[[expect]]
variant = "pi (arrival, class)"
goodput_of_bound_min = 0.5
"""

# The queries to the page, as JavaScript.
CHARTS = "document.querySelectorAll('.chart').length"
DRAWN = """[...document.querySelectorAll('.figures canvas')].map(canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
})"""
FIRST = "document.querySelector('.figures .chart')"
IMAGE = f"{FIRST}.querySelector('canvas').toDataURL()"
PLACE = f"""(() => {{
  {FIRST}.scrollIntoView({{ block: 'center' }});
  const {{ left, top, width, height }} = {FIRST}.querySelector('.u-over').getBoundingClientRect();
  return [left, top, width, height];
}})()"""
TIP = f"{FIRST}.querySelector('.tip').innerText"
COLUMN = """(() => {
  const table = document.querySelector('.results table');
  const column = [...table.tHead.rows[0].cells].findIndex(c => c.innerText.startsWith('goodput'));
  table.tHead.rows[0].cells[column].querySelector('button').click();
  return [...table.tBodies[0].rows].map(row => Number(row.cells[column].dataset.order));
})()"""


class Show(Demonstration):
    ROUNDS = None

    def run(self) -> Results:
        page = report(self)
        with Browser() as browser:
            for scheme in ("dark", "light"):
                browser.colours(scheme)
                browser.open(page)
                drawn(self, browser, scheme)
            zoomed(self, browser)
            told(self, browser, page.parent / "sim" / "results.json")
            hidden(self, browser)
            timeline(self, browser, page.parent)
            values = browser.evaluate(COLUMN)
            self.expect(len(values) > 2 and values == sorted(values), "a click on the head of a column sorts the table")
            browser.size(420, 900)
            narrow = browser.wait("document.documentElement.scrollWidth <= innerWidth", 3)
            self.expect(narrow, "the page fits into a window of 420 pixels")
            browser.picture(self.directory / "narrow.png", whole=False)
            browser.size(1280, 900)
            browser.print(self.directory / "report.pdf")
            paper = (self.directory / "report.pdf").stat().st_size
            self.expect(paper > 20_000, f"the page can be printed ({paper} bytes of PDF)")
            self.expect(not browser.complaints, f"no error or warning: {browser.complaints}")
            asked = {url for url in browser.requests if url != page.resolve().as_uri()}
            self.expect(not asked, f"the page loads nothing: {sorted(asked)}")
        return {}


def report(record: Record) -> Path:
    """Makes a report of the runs in both worlds. Returns its path."""
    scenario = record.directory / "small.toml"
    scenario.write_text(SCENARIO)
    folders = [record.directory / world for world in ("sim", "real")]
    for folder in folders:
        program.scenario(scenario, folder, "--world", folder.name, "--jobs", 4)
        single = (folder / "report.html").exists()
        record.expect(single, f"a run in the world {folder.name} writes a report of it")
    page = record.directory / "report.html"
    printed = program.lab("report", *folders, "--out", page)
    print(printed, end="", flush=True)
    compared = "error in goodput: median" in printed and "error in p99" in printed
    record.expect(compared, "the error of simulated time in goodput and p99 is stated")
    figures = [page.parent / f"worlds-{what}.svg" for what in ("goodput", "set-up-delay")]
    record.expect(all(figure.exists() for figure in figures), "both worlds are in one figure")
    return page


def drawn(record: Record, browser: Browser, scheme: str) -> None:
    browser.wait("document.querySelectorAll('.chart canvas').length === " + CHARTS)
    # Lines, spreads, marks and letters have many colours, and an empty canvas has one.
    shades = browser.evaluate(DRAWN)
    least = min(shades, default=0)
    record.expect(len(shades) == 8 and least > 20, f"{scheme}: {len(shades)} charts, each of {least} shades")
    browser.picture(record.directory / f"{scheme}.png")


def zoomed(record: Record, browser: Browser) -> None:
    left, top, width, height = browser.evaluate(PLACE)
    before = browser.evaluate(IMAGE)
    browser.drag((left + width * 0.2, top + 10), (left + width * 0.6, top + height * 0.6))
    shown = "[...document.querySelectorAll('.figures .reset')].filter(b => !b.hidden).length"
    record.expect(
        browser.evaluate(IMAGE) != before and browser.evaluate(shown) == 8,
        "dragging zooms a chart, and the others along the same axis",
    )
    browser.picture(record.directory / "zoomed.png", whole=False)
    middle = (left + width / 2, top + height / 2)
    for clicks in (1, 2):
        browser.mouse("mousePressed", middle, clicks)
        browser.mouse("mouseReleased", middle, clicks)
    restored = browser.evaluate(IMAGE) == before and browser.evaluate(shown) == 0
    record.expect(restored, "a double click shows all again")


def told(record: Record, browser: Browser, results: Path) -> None:
    left, top, width, height = browser.evaluate(PLACE)
    for step in (0, 1):
        browser.mouse("mouseMoved", (left + width * 0.49 + step, top + height / 2))
    rows: list[dict[str, Any]] = json.loads(results.read_text())["rows"]
    title = browser.evaluate(f"{FIRST}.querySelector('figcaption b').innerText")
    row = next(row for row in rows if row["panel"] == title and row["load"] == 2)
    told = browser.evaluate(TIP)
    median = f"{row['goodput']['median']:.3f}".rstrip("0").rstrip(".")
    found = "load 2" in told and row["label"] in told and median in told
    record.expect(found, f"pointing at a place shows its values: {told.split()[:9]}")
    browser.picture(record.directory / "pointed.png", whole=False)
    browser.evaluate(f"{FIRST}.querySelector('.plot').focus()")
    for _ in range(2):
        browser.press("ArrowRight")
    spoken = browser.evaluate("document.querySelector('.spoken').textContent")
    record.expect(spoken.startswith("load "), f"arrow keys make a screen reader read the values: {spoken!r}")


def hidden(record: Record, browser: Browser) -> None:
    before = browser.evaluate(IMAGE)
    press = "document.querySelector('.figures .controls button[aria-pressed]').click()"
    browser.evaluate(press)
    without = browser.evaluate(IMAGE)
    browser.evaluate(press)
    record.expect(without != before and browser.evaluate(IMAGE) == before, "a line can be hidden")


def timeline(record: Record, browser: Browser, folder: Path) -> None:
    """Checks that the timelines of runs are shown, if there are any."""
    left = len(list(folder.glob("*/points/*/timeline.csv")))
    charts = browser.evaluate("document.querySelectorAll('.timeline .chart').length")
    record.expect((left > 0) == (charts > 0), f"{left} runs left a timeline: {charts} charts")
