"use strict";
// Comforts only: the page says everything without this script.
(() => {
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
  for (const element of all(".needs-script")) element.hidden = false;

  const table = document.getElementById("matrix");
  if (table) {
    const rows = all("tr.operator", table);
    const detailOf = (row) => row.nextElementSibling;
    const toggle = (row, open) => {
      detailOf(row).hidden = !open;
      row.querySelector(".first button").setAttribute("aria-expanded", String(open));
    };
    const isOpen = (row) => !detailOf(row).hidden;
    for (const row of rows) {
      // The operator's name becomes a button that opens what is behind its cells.
      const name = row.querySelector(".first code");
      const button = document.createElement("button");
      button.type = "button";
      button.append(...name.childNodes);
      button.setAttribute("aria-expanded", "false");
      button.setAttribute("aria-controls", detailOf(row).id);
      name.replaceWith(button);
      for (const cell of all(".cell", row)) cell.dataset.open = "";
      row.addEventListener("click", (event) => {
        if (event.target.closest(".cell, button")) toggle(row, !isOpen(row));
      });
    }
    const text = document.getElementById("filter");
    const kind = document.getElementById("kind");
    const shown = document.getElementById("shown");
    const nothing = document.getElementById("nothing");
    const apply = () => {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of rows) {
        const kinds = row.dataset.kinds.split(" ");
        const fits = words.every((word) => row.dataset.name.includes(word)) && (!kind.value || kinds.includes(kind.value));
        row.hidden = !fits;
        if (!fits) toggle(row, false);
        count += fits;
      }
      shown.textContent = `${count} of ${rows.length} operators`;
      nothing.hidden = count > 0;
    };
    text.addEventListener("input", apply);
    kind.addEventListener("change", apply);
    apply();
  }

  for (const box of all(".snippet")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const code = box.querySelector("pre");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        const range = document.createRange();
        range.selectNodeContents(code);
        const selection = getSelection();
        selection.removeAllRanges();
        selection.addRange(range);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    box.append(button);
  }

  // A link to a fault opens it.
  const open = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  };
  addEventListener("hashchange", open);
  open();
})();
