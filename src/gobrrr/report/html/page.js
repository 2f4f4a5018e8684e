"use strict";
// Sorting, copying and zooming; without it the page says the same.
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
for (const chart of document.querySelectorAll("svg.timeline")) {
  const left = Number(chart.dataset.left), width = Number(chart.dataset.width), ns = Number(chart.dataset.ns);
  const pieces = [...chart.querySelectorAll(".slice")].map((rect) => ({
    rect, x: Number(rect.getAttribute("x")), width: Number(rect.getAttribute("width")),
    y: Number(rect.getAttribute("y")), words: rect.textContent,
  }));
  let labels = [...chart.querySelectorAll(".label")];
  const ticks = [...chart.querySelectorAll(".ticks text")];
  const most = 200;
  let from = 0, to = 1;
  const time = (value) => {
    for (const [size, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "us"]]) {
      if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
    }
    return `${Math.round(value)} ns`;
  };
  const draw = () => {
    const scale = 1 / (to - from), right = left + width;
    labels.forEach((label) => label.remove());
    labels = [];
    for (const piece of pieces) {
      const start = left + (piece.x - left - from * width) * scale, end = start + piece.width * scale;
      const [a, b] = [Math.max(left, start), Math.min(right, end)];
      piece.rect.classList.toggle("hidden", b <= a);
      if (b <= a) continue;
      piece.rect.setAttribute("x", a);
      piece.rect.setAttribute("width", b - a);
      const room = Math.floor((b - a - 6) / 7.6);
      if (room < 4) continue;
      const label = document.createElementNS("http://www.w3.org/2000/svg", "text");
      const name = piece.words.split(", ")[0];
      label.setAttribute("x", a + 3);
      label.setAttribute("y", piece.y + 12);
      label.classList.add("label");
      label.textContent = name.length > room ? `${name.slice(0, room - 1)}…` : name;
      labels.push(label);
    }
    chart.append(...labels);
    ticks.forEach((tick, i) => {
      const at = ns * (from + (to - from) * i / (ticks.length - 1));
      tick.textContent = at ? time(at) : "0";
    });
  };
  const show = (start, end) => {
    const span = Math.min(1, Math.max(1 / most, end - start));
    from = Math.min(1 - span, Math.max(0, (start + end - span) / 2));
    to = from + span;
    draw();
  };
  const zoom = (factor) => { const half = (to - from) * factor / 2, mid = (from + to) / 2; show(mid - half, mid + half); };
  const move = (share) => { const by = (to - from) * share; show(from + by, to + by); };
  const acts = [["Zoom in", () => zoom(0.5)], ["Zoom out", () => zoom(2)], ["←", () => move(-0.5), "Earlier"],
    ["→", () => move(0.5), "Later"], ["Whole step", () => show(0, 1)]];
  const row = document.createElement("div");
  row.className = "zoom";
  for (const [words, act, spoken] of acts) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = words;
    if (spoken) button.setAttribute("aria-label", spoken);
    button.addEventListener("click", act);
    row.append(button);
  }
  const said = document.createElement("output");
  said.textContent = "Drag over a stretch to zoom into it; point at a bar to read it.";
  row.append(said);
  chart.parentElement.before(row);
  chart.addEventListener("pointerover", (event) => {
    if (event.target.classList.contains("slice")) said.textContent = event.target.textContent;
  });
  const at = (event) => {
    const box = chart.getBoundingClientRect();
    const x = (event.clientX - box.left) * chart.viewBox.baseVal.width / box.width;
    return from + (to - from) * Math.min(1, Math.max(0, (x - left) / width));
  };
  let begun = null;
  chart.addEventListener("pointerdown", (event) => { begun = event.pointerType === "mouse" ? at(event) : null; });
  chart.addEventListener("pointerup", (event) => {
    if (begun === null) return;
    const ended = at(event), [a, b] = [Math.min(begun, ended), Math.max(begun, ended)];
    begun = null;
    if (b - a > (to - from) / 100) show(a, b);
  });
}
