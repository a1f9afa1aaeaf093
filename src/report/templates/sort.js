for (const table of document.querySelectorAll("table")) {
  const value = (row, column, numeric) => {
    const text = row.cells[column].textContent.replace("−", "-").replaceAll(",", "");
    return numeric ? (Number.isNaN(parseFloat(text)) ? -Infinity : parseFloat(text)) : text;
  };
  const sort = head => {
    const column = head.cellIndex, body = table.tBodies[0], numeric = head.classList.contains("number");
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const order = (a, b) => (a < b ? -sign : a > b ? sign : 0);
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
    body.append(...[...body.rows].sort((a, b) => order(value(a, column, numeric), value(b, column, numeric))));
  };
  for (const head of table.tHead.rows[0].cells) {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head));
    head.addEventListener("keydown", event => event.key === "Enter" && sort(head));
  }
}
