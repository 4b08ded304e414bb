"use strict";
// Tables: a click on a heading sorts by its column, a second one the other way round.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const numbers = head.classList.contains("n");
      // Numbers begin with the greatest, names with the first.
      const before = head.getAttribute("aria-sort");
      const up = before === null ? !numbers : before === "descending";
      const key = (row) => {
        const cell = row.cells[column];
        return numbers ? Number(cell.dataset.value ?? cell.textContent) : cell.textContent;
      };
      const order = (a, b) => (numbers ? (a < b ? -1 : a > b ? 1 : 0) : a.localeCompare(b, "en", { numeric: true }));
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort((a, b) => (up ? order(a[0], b[0]) : order(b[0], a[0])));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      body.append(...rows.map((pair) => pair[1]));
    });
  });
}

// A table that is wider than the screen says so, and keeps its first column in sight.
const boxes = [...document.querySelectorAll(".scroll")].map((box) => {
  const hint = document.createElement("p");
  hint.className = "hint";
  hint.textContent = "more columns: move the table sideways \u2192";
  hint.hidden = true;
  box.before(hint);
  return [box, hint];
});
function measure() {
  for (const [box, hint] of boxes) {
    const more = box.scrollWidth > box.clientWidth + 1;
    box.classList.toggle("more", more);
    hint.hidden = !more;
  }
}
measure();
window.addEventListener("resize", measure);
document.addEventListener("toggle", measure, true); // a table that was folded away has no width before

// Charts: what is pointed at, tapped, or reached with the arrow keys says its value.
const tip = document.getElementById("tip");
const NEAR = 26; // pixels

function hide() {
  tip.hidden = true;
  for (const ring of document.querySelectorAll(".cursor")) ring.remove();
}

function show(chart, point) {
  hide();
  const ring = document.createElementNS("http://www.w3.org/2000/svg", "circle");
  ring.setAttribute("class", "cursor");
  ring.setAttribute("cx", point.x);
  ring.setAttribute("cy", point.y);
  ring.setAttribute("r", 8);
  chart.append(ring);
  const place = ring.getBoundingClientRect();
  tip.textContent = point.text;
  tip.hidden = false;
  const width = document.documentElement.clientWidth;
  const left = Math.min(Math.max(place.left + place.width / 2 - tip.offsetWidth / 2, 6), width - tip.offsetWidth - 6);
  const above = place.top - tip.offsetHeight - 6;
  tip.style.left = `${left + window.scrollX}px`;
  tip.style.top = `${(above < 4 ? place.bottom + 6 : above) + window.scrollY}px`;
}

function pointsOf(chart) {
  const points = [];
  for (const shape of chart.querySelectorAll("[data-tip]")) {
    const texts = shape.dataset.tips ? JSON.parse(shape.dataset.tips) : null;
    if (texts) {
      texts.forEach((text, k) => {
        const { x, y } = shape.points[k];
        points.push({ x, y, text, shape });
      });
    } else {
      const { x, y, width, height } = shape.getBBox();
      points.push({ x: x + width / 2, y: y + height / 2, text: shape.dataset.tip, shape });
    }
  }
  return points;
}

for (const chart of document.querySelectorAll("svg.chart")) {
  // The browser's own tip would cover ours; readers of the screen hear ours as it changes.
  for (const title of chart.querySelectorAll("title")) title.remove();
  // A chart that is not shown, the phone's or the desktop's, has no places yet: they are found when it is used.
  let points = null;
  let current = -1;
  const point = (event) => {
    points ??= pointsOf(chart);
    const hit = event.target.closest("[data-tip]:not([data-tips])");
    if (hit) {
      current = points.findIndex((candidate) => candidate.shape === hit);
    } else {
      const matrix = chart.getScreenCTM();
      const away = (p) => Math.hypot(p.x * matrix.a + matrix.e - event.clientX, p.y * matrix.d + matrix.f - event.clientY);
      let least = NEAR;
      current = -1;
      points.forEach((candidate, k) => {
        const distance = away(candidate);
        if (distance < least) [least, current] = [distance, k];
      });
    }
    if (current < 0) hide();
    else show(chart, points[current]);
  };
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerdown", point);
  chart.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  chart.addEventListener("blur", hide);
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step) return;
    points ??= pointsOf(chart);
    if (!points.length) return;
    event.preventDefault();
    current = current < 0 && step < 0 ? points.length - 1 : (current + step + points.length) % points.length;
    show(chart, points[current]);
  });
}
