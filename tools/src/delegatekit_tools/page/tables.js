// Long tables: a filter, and an order by each column, over all parts that fold.

for (const set of document.querySelectorAll(".long")) {
  const rows = [...set.querySelectorAll("tbody > tr")].filter(row => row.closest(".long") === set && !row.closest("td"));
  const tables = [...set.querySelectorAll(":scope > details > .wide > table, :scope > .wide > table")];
  const bodies = tables.map(table => table.tBodies[0]), sizes = bodies.map(body => body.rows.length);
  const texts = new Map(rows.map(row => [row, row.textContent.toLowerCase()]));
  const input = set.querySelector("input"), told = set.querySelector("output");
  set.querySelector(".filter").hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let count = 0;
    for (const row of rows) count += !(row.hidden = !texts.get(row).includes(wanted));
    told.textContent = wanted ? `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")}` : "";
    tables.forEach((table, at) => {
      const part = table.closest(".long > details");
      if (!part) return;
      part.hidden = ![...bodies[at].rows].some(row => !row.hidden);
      if (wanted) part.open = true;
    });
  });
  const value = (row, column) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  tables.forEach(table => [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending", number = row => Number(value(row, column));
      const numeric = rows.every(row => value(row, column) === "" || !Number.isNaN(number(row)));
      const compare = numeric ? (one, other) => number(one) - number(other) : (one, other) => value(one, column).localeCompare(value(other, column));
      const sorted = [...rows].sort((one, other) => (down ? -1 : 1) * compare(one, other));
      bodies.forEach((body, at) => body.append(...sorted.splice(0, sizes[at])));
      for (const each of tables) [...each.tHead.rows[0].cells].forEach((other, at) => at === column ? other.setAttribute("aria-sort", down ? "descending" : "ascending") : other.removeAttribute("aria-sort"));
      input.dispatchEvent(new Event("input"));
    });
  }));
}
