"use strict";
(() => {
  const plots = JSON.parse(document.getElementById("plots").textContent) || [];
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
  const bytes = (n) => {
    let i = 0;
    for (; Math.abs(n) >= 1024 && i < units.length - 1; i++) n /= 1024;
    return +n.toFixed(2) + units[i];
  };
  const binary = Array.from({ length: 60 }, (_, i) => 2 ** i); // Mi and Gi have round steps, too
  const amount = { bytes, count: (n) => String(+n.toFixed(2)), share: (n) => +n.toFixed(2) + "%" };
  const font = (px) => px * devicePixelRatio + "px system-ui, sans-serif";

  // Thresholds lie across the plot, and moments stand in it.
  const annotate = (p) => (u) => {
    const { ctx, bbox: b } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(b.left, b.top, b.width, b.height);
    ctx.clip();
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.font = font(12);
    const line = (x0, y0, x1, y1, stroke, dash) => {
      ctx.strokeStyle = ctx.fillStyle = stroke;
      ctx.setLineDash(dash.map((n) => n * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(x0, y0);
      ctx.lineTo(x1, y1);
      ctx.stroke();
    };
    for (const l of p.limits) {
      const y = Math.round(u.valToPos(l.y, "y", true));
      line(b.left, y, b.left + b.width, y, color("--limit"), [6, 4]);
      ctx.textAlign = "left";
      ctx.fillText(l.label, b.left + 4 * devicePixelRatio, y - 4 * devicePixelRatio);
    }
    p.marks.forEach((m, i) => {
      const x = Math.round(u.valToPos(m.x, "x", true));
      line(x, b.top, x, b.top + b.height, color("--mark"), []);
      const right = x > b.left + b.width * 0.8;
      ctx.textAlign = right ? "right" : "left";
      ctx.fillText(m.label, x + (right ? -4 : 4) * devicePixelRatio, b.top + (14 + 14 * i) * devicePixelRatio);
    });
    ctx.restore();
  };

  const draw = (p) => {
    const box = document.getElementById(p.id);
    const axis = { stroke: color("--text"), grid: { stroke: color("--grid"), width: 1 }, ticks: { stroke: color("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    const format = amount[p.unit];
    const values = p.y.concat(p.limits.map((l) => l.y)).filter((v) => v !== null);
    const top = Math.max(...values), bottom = Math.min(...values), room = (top - bottom || top || 1) * 0.08;
    return new uPlot({
      width: box.clientWidth, height: 220, legend: { show: false }, cursor: { y: false },
      scales: { x: { time: false }, y: { range: [Math.max(bottom - room, 0), top + room] } },
      axes: [
        { ...axis, values: (u, all) => all.map((v) => v + " s"), space: 56 },
        { ...axis, size: 72, incrs: p.unit === "bytes" ? binary : undefined, values: (u, all) => all.map(format) },
      ],
      series: [{}, { stroke: color("--line"), width: 2, points: { show: p.x.length < 40 } }],
      hooks: { draw: [annotate(p)] },
    }, [p.x, p.y], box);
  };

  let drawn = [];
  const redraw = () => {
    for (const u of drawn) u.destroy();
    drawn = plots.map(draw);
    document.documentElement.dataset.plots = drawn.length;
  };
  redraw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("resize", () => drawn.forEach((u, i) => u.setSize({ width: document.getElementById(plots[i].id).clientWidth, height: 220 })));
  addEventListener("beforeprint", () => {
    for (const d of document.querySelectorAll("details")) d.open = true;
    redraw();
  });
  addEventListener("afterprint", redraw);
})();
