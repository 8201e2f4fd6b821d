"use strict";
// Sorts a table when a user clicks the head of a column: first ascending, then descending.

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(table, column, down);
    });
  });
}

function sort(table, column, down) {
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compare(a.cells[column], b.cells[column]) * (down ? -1 : 1));
  table.tBodies[0].append(...rows);
}

/** Compares cells by number, or by text if neither has one. A cell without a number is last. */
function compare(a, b) {
  const [x, y] = [a.dataset.order, b.dataset.order];
  if (x !== undefined && y !== undefined) return Number(x) - Number(y);
  if (x !== undefined || y !== undefined) return x === undefined ? 1 : -1;
  return a.textContent.localeCompare(b.textContent);
}
