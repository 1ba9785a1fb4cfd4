"use strict";
(() => {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = {
    displaylogo: false, responsive: true, displayModeBar: "hover",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
  };
  const ink = () => (dark.matches ? "#c9d1d9" : "#3d444d");
  const panel = () => (dark.matches ? "#1b2027" : "#ffffff");
  const themed = (layout) => ({
    ...layout, autosize: true, width: undefined,
    font: { ...(layout.font || {}), color: ink(), family: "system-ui, -apple-system, Segoe UI, Roboto, sans-serif" },
    hoverlabel: { ...(layout.hoverlabel || {}), bgcolor: panel(), bordercolor: ink(), font: { color: ink() } },
  });
  const drawings = [...document.querySelectorAll("script.plot-data")].map((data) => {
    const place = data.parentElement.querySelector(".plot");
    const figure = JSON.parse(data.textContent);
    Plotly.newPlot(place, figure.data, themed(figure.layout), config).then(() => place.classList.add("drawn"));
    return { place, figure };
  });
  dark.addEventListener("change", () => {
    for (const { place, figure } of drawings) Plotly.react(place, figure.data, themed(figure.layout), config);
  });
  const open = new Set();
  window.addEventListener("beforeprint", () => {
    for (const d of document.querySelectorAll("details:not(.code):not([open])")) { d.open = true; open.add(d); }
  });
  window.addEventListener("afterprint", () => { for (const d of open) d.open = false; open.clear(); });
})();
