"""Tables on the terminal, with the spread over rounds."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate_bench.record import Spread

_SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {
    "median": lambda values: Spread.of(values).median,
    "sum": sum,
    "min": min,
    "max": max,
}


@dataclass(frozen=True)
class Column:
    """A column: its title, a quantity of each item, and the way to summarise the items of one line."""

    title: str
    of: Callable[[Any], float | None] | str
    """A function of an item that returns the quantity, or the key of the quantity in an item that is a mapping. `None`
    is left out of the summary."""
    digits: int = 0
    summary: str = "median"
    """`spread`, `median`, `sum`, `min` or `max`."""

    def head(self) -> str:
        """Returns the title, as wide as `cell`."""
        if self.summary == "spread":
            return f"  {self.title + ':':>10}{'min':>7}{'median':>9}{'max':>9}"
        return f"  {self.title:>{self._width}}"

    def cell(self, items: Iterable[Any]) -> str:
        """Returns the summary of these items, or a dash if none has the quantity."""
        values = [value for item in items if (value := value_of(item, self.of)) is not None]
        if not values:
            return f"{'-':>{len(self.head())}}"
        if self.summary == "spread":
            least, middle, most = Spread.of(values)
            return f"{least:>{len(self.head()) - 18}.{self.digits}f}{middle:>9.{self.digits}f}{most:>9.{self.digits}f}"
        return f"  {_SUMMARIES[self.summary](values):>{self._width}.{self.digits}f}"

    @property
    def _width(self) -> int:
        return max(len(self.title), 5)


def value_of(item: Any, of: Callable[[Any], float | None] | str) -> float | None:
    """Returns the quantity of an item, by a function or by a key."""
    return item[of] if isinstance(of, str) else of(item)


def show(
    items: Iterable[Any],
    columns: Sequence[Column],
    line: Callable[[Any], object],
    block: Callable[[Any], object] = lambda _: "",
) -> None:
    """Prints a block for each value of `block`, and in it a line for each value of `line`, which summarises all items
    with both values.
    """
    listed = list(items)
    lines = [f"  {line(item)}" for item in listed]
    width = max(map(len, lines), default=0)
    blocks = [str(block(item)) for item in listed]
    for title in dict.fromkeys(blocks):
        print(f"\n{title:<{width}}" + "".join(column.head() for column in columns))
        mine = [(label, item) for label, item, of in zip(lines, listed, blocks, strict=True) if of == title]
        for label in dict.fromkeys(label for label, _ in mine):
            cells = (column.cell(item for other, item in mine if other == label) for column in columns)
            print(f"{label:<{width}}" + "".join(cells))
    print(flush=True)


def show_spreads(rows: Sequence[Mapping[str, Any]], quantities: Mapping[str, int], title: str = "") -> None:
    """Prints a line for each quantity: its minimum, median and maximum, with this number of digits.

    `None` is left out. A quantity that no row has is shown as a dash.
    """
    print(f"{title:40}{'min':>9}  {'median':>9}  {'max':>9}")
    for name, digits in quantities.items():
        values = [row[name] for row in rows if row[name] is not None]
        print(f"  {name:38}{Spread.of(values).text(digits) if values else '-':>9}")
