"use strict";
// Closed details would be missing on paper where they hold answers; tables of every row stay closed: they are long.
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll(".verdict details:not([open]), .alarm details:not([open])")];
  opened.forEach((d) => { d.open = true; });
});
window.addEventListener("afterprint", () => { opened.forEach((d) => { d.open = false; }); });

// Search, filter and sort the tables of answers. Without scripts the tables are simply whole.
for (const tools of document.querySelectorAll(".tools")) {
  const search = tools.querySelector("input"), choose = tools.querySelector("select");
  const table = document.getElementById(search.getAttribute("aria-controls"));
  const body = table.tBodies[0], rows = [...body.rows];
  tools.hidden = false;
  const apply = () => {
    const wanted = search.value.toLowerCase().split(/\s+/).filter(Boolean), word = choose.value;
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = wanted.every((part) => text.includes(part)) &&
        (!word || row.querySelector(`[data-word="${word}"]`) !== null);
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    tools.querySelector(".count").textContent = `${shown} of ${rows.length} settings`;
  };
  search.addEventListener("input", apply);
  choose.addEventListener("change", apply);
  apply();
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.sort;
      rows.sort((a, b) => key(a) === undefined
        ? a.cells[column].textContent.localeCompare(b.cells[column].textContent)
        : Number(key(a)) - Number(key(b)));
      if (down) rows.reverse();
      body.append(...rows);
    });
  });
}
