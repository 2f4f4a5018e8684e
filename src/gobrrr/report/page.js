"use strict";
// Sorting and copying; without it the page says the same.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [a.cells[column], b.cells[column]];
        const order = x.dataset.value !== undefined && y.dataset.value !== undefined
          ? Number(x.dataset.value) - Number(y.dataset.value)
          : x.textContent.localeCompare(y.textContent);
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
for (const text of document.querySelectorAll(".copy")) {
  const words = text.textContent.trim();
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copies";
  button.textContent = "Copy";
  button.addEventListener("click", () => {
    const say = (said) => { button.textContent = said; };
    if (!navigator.clipboard) { say("Select and copy by hand"); return; }
    navigator.clipboard.writeText(words).then(() => say("Copied"), () => say("Select and copy by hand"));
  });
  text.append(button);
}
