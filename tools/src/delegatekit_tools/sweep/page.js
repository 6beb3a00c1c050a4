const table = document.querySelector(".rows");
const heads = [...table.tHead.rows[0].cells];
const choice = document.querySelector(".sort select");

// A row and its details are a body of the table: they stay together. Unknown values are last in both directions.
function sort(index, descending) {
  heads.forEach((head, at) => {
    if (at === index) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  const cell = body => body.rows[0].cells[index];
  const empty = body => cell(body).textContent === "";
  const key = body => ("value" in cell(body).dataset ? Number(cell(body).dataset.value) : cell(body).textContent);
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  [...table.tBodies]
    .sort((a, b) => empty(a) - empty(b) || (descending ? -1 : 1) * order(key(a), key(b)))
    .forEach(body => table.append(body));
  choice.value = `${index} ${descending}`;
}

heads.forEach((head, index) => {
  head.querySelector("button").addEventListener("click", () => sort(index, head.getAttribute("aria-sort") === "ascending"));
});
choice.addEventListener("change", () => {
  const [index, descending] = choice.value.split(" ");
  if (index) sort(Number(index), descending === "true");
});
