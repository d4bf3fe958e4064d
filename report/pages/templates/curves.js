// One panel of curves per problem: overhead by budget, a line per strategy and variant.
const KINDS = {
  simulated: { column: "overhead", title: "simulated overhead", format: ".0%" },
  measured: { column: "measured_overhead", title: "measured overhead", format: ".0%" },
  planned: { column: "objective", title: "planned objective (planner's unit)", format: "~s" },
};
const DASHES = ["solid", "dot", "dash", "longdash", "dashdot", "longdashdot"];

class Curves {
  constructor(box, onOpen) {
    this.box = box;
    this.onOpen = onOpen;
    // Panels out of sight are not drawn, so that hundreds cost nothing.
    this.watcher = new IntersectionObserver((seen) => seen.forEach((entry) => this.turn(entry)),
      { root: box, rootMargin: "300px" });
  }

  show(rows, kind) {
    this.watcher.disconnect();
    this.box.querySelectorAll(".plot").forEach((plot) => Plotly.purge(plot));
    this.kind = KINDS[kind];
    const panels = [];
    for (const [key, members] of this.problems(rows, kind)) {
      const drawn = members.filter((row) => this.isDrawn(row));
      if (drawn.length) panels.push(this.panel(key, members, drawn));
    }
    const none = `No row with a plan and a ${this.kind.title} at a finite budget.`;
    this.box.replaceChildren(...(panels.length ? panels : [element("p", {}, none)]));
    panels.forEach((panel) => this.watcher.observe(panel));
  }

  /** Rows by problem; what is measured on two devices does not share a panel. */
  problems(rows, kind) {
    const found = new Map();
    const add = (key, row) => found.has(key) ? found.get(key).push(row) : found.set(key, [row]);
    const title = (row) => data.problems[data.problem[row]];
    if (kind !== "measured") {
      rows.forEach((row) => add(title(row), row));
    } else {
      const devices = new Map(); // of each problem
      const reached = rows.filter((row) => cell("device", row) !== null);
      for (const row of reached) {
        const device = cell("device", row);
        add(`${title(row)} · ${device}`, row);
        if (!devices.has(title(row))) devices.set(title(row), new Set());
        devices.get(title(row)).add(device);
      }
      // Who had no plan reached no device, and is told beside those who did.
      for (const row of rows.filter((r) => cell("device", r) === null && cell("status", r) !== "ok")) {
        (devices.get(title(row)) ?? []).forEach((device) => add(`${title(row)} · ${device}`, row));
      }
    }
    return [...found].sort((a, b) => a[0].localeCompare(b[0], "en", { numeric: true }));
  }

  isDrawn(row) {
    return cell("status", row) === "ok" && data.budget[row] !== null
      && cell(this.kind.column, row) !== null;
  }

  panel(title, members, drawn) {
    const plot = element("div", { className: "plot" });
    const panel = element("div", { className: "panel" }, element("h3", {}, title), plot,
      element("div", { className: "quiet" }, this.missed(members)));
    panel.plot = plot;
    panel.rows = drawn;
    return panel;
  }

  /** Who gave up, which the curves cannot show. */
  missed(members) {
    const counts = new Map();
    for (const row of members) {
      const name = String(cell("strategy", row));
      const [bad, all] = counts.get(name) ?? [0, 0];
      counts.set(name, [bad + (cell("status", row) !== "ok"), all + 1]);
    }
    const parts = [...counts].filter(([, [bad]]) => bad)
      .map(([name, [bad, all]]) => `${name} ${bad} of ${all}`);
    return parts.length ? `Without a plan: ${parts.join(", ")}` : "";
  }

  turn({ target, isIntersecting }) {
    if (isIntersecting && !target.drawn) this.draw(target);
    else if (!isIntersecting && target.drawn) Plotly.purge(target.plot);
    target.drawn = isIntersecting;
  }

  draw(panel) {
    const traces = this.traces(panel.rows);
    const names = new Set(panel.rows.map((row) => cell("strategy", row)));
    const variants = traces.length > names.size; // one colour, several lines: name them
    const axis = { rangemode: "tozero", gridcolor: "#e6e6e6", linecolor: "#777", zeroline: false, automargin: true };
    const layout = {
      height: 290, margin: { l: 58, r: 10, t: 8, b: 40 }, hovermode: "closest",
      showlegend: variants, legend: { orientation: "h", y: -0.34, font: { size: 10 } },
      xaxis: { ...axis, title: { text: "budget fraction" }, tickformat: ".0%" },
      yaxis: { ...axis, title: { text: this.kind.title }, tickformat: this.kind.format },
    };
    if (this.kind.format === ".0%") Object.assign(layout.yaxis, { zeroline: true, zerolinecolor: "#777" });
    Plotly.newPlot(panel.plot, traces, layout,
      { responsive: true, displayModeBar: false });
    panel.plot.on("plotly_click", (event) => this.onOpen(event.points[0].customdata));
  }

  traces(rows) {
    const lines = new Map();
    for (const row of rows) {
      const [strategy, variant] = [String(cell("strategy", row)), cell("variant", row)];
      const key = JSON.stringify([strategy, variant]);
      if (!lines.has(key)) lines.set(key, { strategy, variant, rows: [] });
      lines.get(key).rows.push(row);
    }
    const names = Object.keys(data.strategies);
    const sorted = [...lines.values()].sort(
      (a, b) => names.indexOf(a.strategy) - names.indexOf(b.strategy));
    const variants = new Map();
    return sorted.map((line) => {
      const nth = variants.get(line.strategy) ?? 0;
      variants.set(line.strategy, nth + 1);
      return this.trace(line, DASHES[nth % DASHES.length]);
    });
  }

  trace({ strategy, variant, rows }, dash) {
    const y = (row) => cell(this.kind.column, row);
    rows.sort((a, b) => data.budget[a] - data.budget[b] || y(a) - y(b));
    const { colour, symbol } = data.strategies[strategy];
    const name = variant ? `${strategy} (${variant})` : strategy;
    const number = this.kind.format === ".0%" ? "%{y:.2%}" : "%{y}";
    return {
      type: "scatter", mode: "lines+markers", name, x: rows.map((row) => data.budget[row]),
      y: rows.map(y), customdata: rows, line: { color: colour, width: 1.6, dash },
      marker: { color: colour, symbol, size: 8, line: { color: "#fff", width: 0.6 } },
      hovertemplate: `%{fullData.name}<br>budget %{x:.1%}<br>${number}<extra></extra>`,
    };
  }
}
