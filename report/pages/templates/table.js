"use strict";
// The rows, and the table that shows only those in sight: 10,000 elements would stall the page.
const data = JSON.parse(document.getElementById("data").textContent);
const columns = new Map(data.columns.map((column) => [column.name, column]));
columns.set("budget", { name: "budget", kind: "ratio", from: "job", values: data.budget });
const HEIGHT = 26; // of a row, as in style.css
const NARROW = ["model", "batch_size", "resolution", "costmodel", "strategy", "variant", "budget",
  "status", "reason", "overhead", "gap", "peak_bytes", "recomputations", "checkpoints", "objective",
  "measured_overhead", "measured_peak_bytes", "peak_error", "plan_seconds"];

function cell(name, row) {
  const column = columns.get(name);
  const value = column.values[row];
  return column.distinct ? column.distinct[value] : value;
}

function humanBytes(count) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(count) < 1024) return `${Number(count.toPrecision(4))} ${unit}`;
    count /= 1024;
  }
  return `${Number(count.toPrecision(4))} TiB`;
}

function readable(kind, value) {
  if (value === null) return "";
  if (typeof value !== "number") return value;
  if (kind === "bytes") return humanBytes(value);
  if (kind === "ratio") return `${Number((value * 100).toPrecision(3))} %`;
  if (kind === "seconds") return `${Number(value.toPrecision(3))} s`;
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(6)));
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function isEmpty(column) {
  return column.distinct ? column.distinct.every((v) => v === null) : false;
}

class Table {
  constructor(box, onOpen) {
    this.box = box;
    this.onOpen = onOpen;
    this.rows = [];
    this.sortBy = null;
    this.descending = false;
    this.first = -1;
    box.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(box);
    this.choose(false);
  }

  /** Show the usual columns, or all that hold anything. */
  choose(wide) {
    const names = wide ? [...columns.keys()].filter((name) => name !== "budget") : NARROW;
    this.names = names.filter((name) => !isEmpty(columns.get(name)));
    const widths = this.names.map((name) => this.width(name));
    this.box.querySelector("colgroup").replaceChildren(
      ...[34, ...widths].map((width) => element("col", { style: `width:${width}px` })));
    const table = this.box.querySelector("table");
    table.style.width = `${widths.reduce((sum, width) => sum + width, 34)}px`;
    this.drawHead();
    this.redraw();
  }

  width(name) {
    const column = columns.get(name);
    const values = column.distinct ?? column.values;
    const step = Math.max(1, Math.floor(values.length / 300));
    let longest = name.length + 2;
    for (let i = 0; i < values.length; i += step) {
      longest = Math.max(longest, String(readable(column.kind, values[i])).length);
    }
    return Math.min(300, 18 + longest * (name === "status" ? 8.8 : 7.4));
  }

  drawHead() {
    const heads = this.names.map((name) => {
      const { kind, from } = columns.get(name);
      const arrow = this.sortBy === name ? (this.descending ? " ▼" : " ▲") : "";
      const button = element("button", { type: "button", title: name }, name + arrow);
      button.addEventListener("click", () => this.toggle(name));
      const head = element("th", { scope: "col", className: kind === "text" ? "" : "number" },
        element("small", {}, from), button);
      head.dataset.column = name;
      if (arrow) head.ariaSort = this.descending ? "descending" : "ascending";
      return head;
    });
    this.box.querySelector("thead").replaceChildren(element("tr", {}, element("th"), ...heads));
  }

  /** First ascending, then descending, then as they came. */
  toggle(name) {
    if (this.sortBy !== name) [this.sortBy, this.descending] = [name, false];
    else if (!this.descending) this.descending = true;
    else [this.sortBy, this.descending] = [null, false];
    this.drawHead();
    this.show(this.rows);
  }

  show(rows) {
    this.rows = rows.slice().sort((a, b) => a - b);
    if (this.sortBy) {
      const sign = this.descending ? -1 : 1;
      const keys = new Map(this.rows.map((row) => [row, cell(this.sortBy, row)]));
      this.rows.sort((a, b) => compare(keys.get(a), keys.get(b), sign) || a - b);
    }
    this.box.scrollTop = 0;
    this.redraw();
  }

  redraw() {
    this.first = -1;
    this.draw();
  }

  draw() {
    const inSight = Math.ceil(this.box.clientHeight / HEIGHT) + 20;
    const first = Math.max(0, Math.floor(this.box.scrollTop / HEIGHT) - 10) & ~1;
    if (first === this.first && this.drawn >= inSight) return;
    [this.first, this.drawn] = [first, inSight];
    const rows = this.rows.slice(first, first + inSight);
    this.box.querySelector("tbody").replaceChildren(
      this.space(first), ...rows.map((row) => this.line(row)),
      this.space(this.rows.length - first - rows.length));
  }

  space(count) {
    const line = element("tr", { className: "space" }, element("td"));
    line.style.height = `${Math.max(0, count) * HEIGHT}px`;
    return line;
  }

  line(row) {
    const page = element("td");
    if (data.pages[row]) {
      const link = element("a", { href: `${ROWS}/${data.pages[row]}.html`, title: "schedule" }, "▦");
      link.addEventListener("click", (event) => event.stopPropagation());
      page.append(link);
    }
    const line = element("tr", { className: "row" }, page, ...this.names.map((name) => {
      const { kind } = columns.get(name);
      const value = cell(name, row);
      const text = readable(kind, value);
      const made = element("td", { title: value === null ? "" : `${name}: ${value}` }, text);
      if (kind !== "text") made.className = "number";
      if (name === "measured_peak_bytes" && isOver(row)) made.className += " over";
      if (name === "status") made.className = value === "ok" ? "status-ok" : "status-bad";
      return made;
    }));
    line.dataset.row = row;
    line.addEventListener("click", () => this.onOpen(row));
    return line;
  }
}

const COLLATOR = new Intl.Collator("en", { numeric: true });

/** Was more memory measured than the budget allows? */
function isOver(row) {
  const [budget, measured] = [cell("budget_bytes", row), cell("measured_peak_bytes", row)];
  return budget !== null && measured !== null && measured > budget;
}

/** Nulls last, either way. */
function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * COLLATOR.compare(String(a), String(b));
}
