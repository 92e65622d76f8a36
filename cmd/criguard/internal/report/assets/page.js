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

  // Thresholds lie across the plot, and moments stand in it. A label that would cover another one moves away.
  const annotate = (p) => (u) => {
    const { ctx, bbox: b } = u;
    const px = (n) => n * devicePixelRatio;
    const height = px(14), gap = px(4), right = b.left + b.width, bottom = b.top + b.height;
    const taken = [], marked = p.marks.map((m) => Math.round(u.valToPos(m.x, "x", true)));
    const free = (r) => r[0] >= b.left && r[2] <= right && r[1] >= b.top && r[3] <= bottom &&
      taken.every((t) => r[2] <= t[0] || r[0] >= t[2] || r[3] <= t[1] || r[1] >= t[3]);
    const label = (text, places) => {
      const width = ctx.measureText(text).width;
      const boxes = places(width).map(([x, y]) => [x, y, x + width, y + height]);
      const box = boxes.find((r) => free(r) && !marked.some((x) => r[0] < x && x < r[2])) || boxes.find(free);
      if (!box) return; // the caption has it
      taken.push(box);
      ctx.fillText(text, box[0], box[3] - px(3));
    };
    ctx.save();
    ctx.beginPath();
    ctx.rect(b.left, b.top, b.width, b.height);
    ctx.clip();
    ctx.lineWidth = px(2);
    ctx.font = font(12);
    ctx.textAlign = "left";
    const line = (x0, y0, x1, y1, stroke, dash) => {
      ctx.strokeStyle = ctx.fillStyle = stroke;
      ctx.setLineDash(dash.map(px));
      ctx.beginPath();
      ctx.moveTo(x0, y0);
      ctx.lineTo(x1, y1);
      ctx.stroke();
    };
    for (const l of p.limits) {
      const y = Math.round(u.valToPos(l.y, "y", true));
      line(b.left, y, right, y, color("--limit"), [6, 4]);
      // above the line or below it, at its left end, its right end or between
      label(l.label, (width) => [0, 1, 0.25, 0.5, 0.75].flatMap((part) => {
        const x = b.left + gap + part * (b.width - 2 * gap - width);
        return [[x, y - height - px(2)], [x, y + px(2)]];
      }));
    }
    p.marks.forEach((m, i) => {
      const x = marked[i];
      line(x, b.top, x, bottom, color("--mark"), []);
      // right of the line or left of it, from the top down
      label(m.label, (width) => Array.from({ length: Math.floor(b.height / height) }, (_, i) => b.top + i * height)
        .flatMap((y) => [[x + gap, y], [x - gap - width, y]]));
    });
    ctx.restore();
    document.getElementById(p.id).labels = taken; // for tests in a browser
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
        { ...axis, size: 88, incrs: p.unit === "bytes" ? binary : undefined, values: (u, all) => all.map(format) },
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
