from tests.scratch import Scratch
from tidegate_bench import table
from tidegate_bench.table import Column

ROWS = [
    {"law": "pi", "load": 1, "goodput": 0.9, "drops": 1},
    {"law": "pi", "load": 1, "goodput": 0.7, "drops": 2},
    {"law": "pi", "load": 1, "goodput": 0.8, "drops": 3},
    {"law": "none", "load": 1, "goodput": None, "drops": 0},
]


class ColumnTest(Scratch):
    def test_summarises(self) -> None:
        for summary, text in (("median", "0.80"), ("min", "0.70"), ("max", "0.90"), ("sum", "2.40")):
            self.assertEqual(Column("x", "goodput", 2, summary).cell(ROWS[:3]).strip(), text)

    def test_spread_has_three_values(self) -> None:
        self.assertEqual(Column("x", "goodput", 1, "spread").cell(ROWS[:3]).split(), ["0.7", "0.8", "0.9"])

    def test_head_is_as_wide_as_its_cells(self) -> None:
        for column in (
            Column("a", "goodput"),
            Column("a long title of a column", "goodput", 2),
            Column("goodput/C", "goodput", 3, "spread"),
            Column("a long title of a spread", "goodput", 3, "spread"),
        ):
            for rows in (ROWS[:3], ROWS[3:]):
                self.assertEqual(len(column.cell(rows)), len(column.head()), column)

    def test_leaves_out_values_that_are_none(self) -> None:
        self.assertEqual(Column("x", "goodput").cell(ROWS[3:]).strip(), "-")
        self.assertEqual(Column("x", lambda row: row["goodput"], 1).cell(ROWS).strip(), "0.8")


class ShowTest(Scratch):
    def test_has_a_block_for_each_law_and_a_line_for_each_load(self) -> None:
        columns = [Column("goodput", "goodput", 1), Column("drops", "drops", 0, "sum")]
        table.show(ROWS, columns, line=lambda row: f"load {row['load']}", block=lambda row: row["law"])
        lines = [line.split() for line in self.printed.splitlines() if line]
        self.assertEqual(lines[0], ["pi", "goodput", "drops"])
        self.assertEqual(lines[1], ["load", "1", "0.8", "6"])
        self.assertEqual(lines[2], ["none", "goodput", "drops"])
        self.assertEqual(lines[3], ["load", "1", "-", "0"])

    def test_prints_nothing_without_rows(self) -> None:
        table.show([], [Column("drops", "drops")], line=str)
        self.assertEqual(self.printed.strip(), "")

    def test_spreads_have_a_line_for_each_quantity(self) -> None:
        table.show_spreads(ROWS[:3], {"goodput": 2, "drops": 0}, "pi")
        head, goodput, drops = (line.split() for line in self.printed.splitlines())
        self.assertEqual(head, ["pi", "min", "median", "max"])
        self.assertEqual(goodput, ["goodput", "0.70", "0.80", "0.90"])
        self.assertEqual(drops, ["drops", "1", "2", "3"])

    def test_spreads_leave_out_values_that_are_none(self) -> None:
        for rows, shown in ((ROWS, ["0.70", "0.80", "0.90"]), (ROWS[3:], ["-"])):
            before = len(self.printed)
            table.show_spreads(rows, {"goodput": 2})
            self.assertEqual(self.printed[before:].splitlines()[-1].split(), ["goodput", *shown])
