"use strict";
// Under the pointer: the values of a plot at the nearest place for which it has some.
const reading = document.getElementById("reading");
for (const svg of document.querySelectorAll("svg[data-readings]")) {
  const places = JSON.parse(svg.dataset.readings);
  const cross = svg.querySelector(".cross");
  const hide = () => { reading.hidden = true; cross.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    if (!places.length) return;
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    const nearest = places.reduce((a, b) => Math.abs(a[0] - x) <= Math.abs(b[0] - x) ? a : b);
    cross.setAttribute("x1", nearest[0]);
    cross.setAttribute("x2", nearest[0]);
    cross.setAttribute("visibility", "visible");
    reading.textContent = nearest[1].join("\n");
    reading.hidden = false;
    const size = reading.getBoundingClientRect();
    reading.style.left = Math.min(event.clientX + 16, innerWidth - size.width - 8) + "px";
    reading.style.top = Math.max(8, Math.min(event.clientY - size.height / 2, innerHeight - size.height - 8)) + "px";
  });
}
