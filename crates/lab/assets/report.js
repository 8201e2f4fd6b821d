"use strict";
// Puts the charts of all experiments into the page, and redraws them when its colours change.

const data = JSON.parse(document.getElementById("data").textContent);

const linkedCharts = [...document.querySelectorAll(".experiment")].flatMap((article) => {
  const experiment = data.experiments[Number(article.dataset.index)];
  return [
    ...showLoads(experiment, article.querySelector(".figures")),
    ...showTimes(experiment, article.querySelector(".timeline")),
  ];
});

function redrawAll() {
  for (const linked of linkedCharts) linked().redraw();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

// On paper, two charts fit side by side.
function printing(begins) {
  document.documentElement.classList.toggle("printing", begins);
  for (const plot of document.querySelectorAll(".plot")) plot.style.width = begins ? "330px" : "";
  redrawAll();
}
addEventListener("beforeprint", () => printing(true));
addEventListener("afterprint", () => printing(false));
