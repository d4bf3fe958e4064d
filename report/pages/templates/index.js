// The filter, which everything on the page follows.
const GLYPHS = { circle: "●", square: "■", "triangle-up": "▲", diamond: "◆", "triangle-down": "▼",
  cross: "✚", x: "✖", "triangle-left": "◀", "triangle-right": "▶", pentagon: "⬟", hexagon: "⬢",
  star: "★" };
const UNITS = { "%": 0.01, kB: 1e3, MB: 1e6, GB: 1e9, KiB: 2 ** 10, kiB: 2 ** 10, MiB: 2 ** 20,
  GiB: 2 ** 30, "": 1 };
const TESTS = { "<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b,
  ">=": (a, b) => a >= b, "=": (a, b) => a === b, "!=": (a, b) => a !== b };
const at = (id) => document.getElementById(id);
const hidden = new Set(); // strategies

/** A row's words, for the search; made at the first one. */
const words = [];
function wordsOf(row) {
  words[row] ??= data.columns.filter((c) => c.kind === "text")
    .map((c) => cell(c.name, row) ?? "").join(" ").toLowerCase();
  return words[row];
}

/** One test per word of the filter; throws a sentence for a word that makes no sense. */
function parseFilter(text) {
  return text.split(/\s+/).filter(Boolean).map((word) => {
    const match = /^(\w+)(<=|>=|!=|=|<|>)(.*)$/.exec(word);
    if (!match) return (row) => wordsOf(row).includes(word.toLowerCase());
    const [, name, sign, wanted] = match;
    if (!columns.has(name)) throw new Error(`There is no column ${name}.`);
    const number = /^(-?[\d.]+(?:e[+-]?\d+)?)(%|kB|MB|GB|[Kk]iB|MiB|GiB|)$/.exec(wanted);
    if (columns.get(name).kind === "text") {
      const low = wanted.toLowerCase();
      return (row) => TESTS[sign](String(cell(name, row) ?? "").toLowerCase(), low);
    }
    if (!number) throw new Error(`${name} is compared with a number, as in ${name}${sign}2.`);
    const limit = Number(number[1]) * UNITS[number[2]];
    return (row) => cell(name, row) !== null && TESTS[sign](cell(name, row), limit);
  });
}

function filtered() {
  const tests = parseFilter(at("text").value);
  const [model, status] = [at("model").value, at("status").value];
  const found = [];
  for (let row = 0; row < data.count; row++) {
    if (hidden.has(String(cell("strategy", row)))) continue;
    if (model && String(cell("model", row)) !== model) continue;
    if (status === "!ok" ? cell("status", row) === "ok" : status && cell("status", row) !== status) continue;
    if (tests.every((test) => test(row))) found.push(row);
  }
  return found;
}

function refresh() {
  let rows;
  try {
    rows = filtered();
    at("mistake").textContent = "";
  } catch (error) {
    at("mistake").textContent = error.message;
    return;
  }
  at("shown").textContent = `${rows.length} of ${data.count} rows`;
  table.show(rows);
  curves.show(rows, document.querySelector("input[name=kind]:checked").value);
  summarise(rows);
}

/** Per strategy; the share of met budgets stands beside any mean. */
function summarise(rows) {
  const groups = new Map();
  for (const row of rows) {
    const name = String(cell("strategy", row));
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  const heads = ["strategy", "rows", "with a plan", "share", "smallest budget met",
    "geometric mean of simulated cost ratio", "other statuses"];
  const lines = Object.keys(data.strategies).filter((name) => groups.has(name)).map((name) => {
    const all = groups.get(name);
    const good = all.filter((row) => cell("status", row) === "ok");
    const budgets = good.map((row) => data.budget[row]).filter((budget) => budget !== null);
    const ratios = good.map((row) => cell("overhead", row)).filter((x) => x !== null);
    const mean = Math.exp(ratios.reduce((sum, x) => sum + Math.log1p(x), 0) / ratios.length);
    const others = data.statuses.filter((status) => status !== "ok")
      .map((status) => [status, all.filter((row) => cell("status", row) === status).length])
      .filter(([, count]) => count).map(([status, count]) => `${count} ${status}`);
    const least = budgets.reduce((a, b) => Math.min(a, b), Infinity);
    return [label(name), all.length, good.length, readable("ratio", good.length / all.length),
      budgets.length ? readable("ratio", least) : "", ratios.length ? mean.toFixed(3) : "",
      others.join(", ")];
  });
  const isNumber = (i) => i > 0 && i < 6 ? "number" : "";
  const rowOf = (tag) => (cells) => element("tr", {},
    ...cells.map((content, i) => element(tag, { className: isNumber(i) }, content)));
  at("summary").replaceChildren(element("thead", {}, rowOf("th")(heads)),
    element("tbody", {}, ...lines.map(rowOf("td"))));
}

function label(strategy) {
  const { colour, symbol } = data.strategies[strategy];
  const glyph = element("span", { ariaHidden: "true" }, GLYPHS[symbol] ?? "●");
  glyph.style.color = colour;
  return element("span", {}, glyph, ` ${strategy}`);
}

function open(row) {
  const told = [...columns.keys()].filter((name) => name !== "budget" && cell(name, row) !== null);
  const lines = told.map((name) => {
    const value = cell(name, row);
    const text = readable(columns.get(name).kind, value);
    const exact = String(text) === String(value) ? "" : ` (${value})`;
    return element("tr", {}, element("td", {}, name), element("td", {}, `${text}${exact}`));
  });
  const page = data.pages[row];
  at("details").querySelector("div").replaceChildren(
    element("h2", {}, `${cell("model", row)} · ${cell("strategy", row)}: ${cell("status", row)}`),
    page ? element("p", {}, element("a", { href: `${ROWS}/${page}.html` }, "schedule, timeline, plan"))
      : element("p", { className: "quiet" }, "Its run folder holds no plan and no trace."),
    element("table", {}, ...lines));
  at("details").showModal();
}

function fill(select, names) {
  at(select).append(...names.map((name) => element("option", { value: name }, name)));
}

function makeChips() {
  at("chips").replaceChildren(...Object.keys(data.strategies).map((name) => {
    const chip = element("button", { type: "button", ariaPressed: String(!hidden.has(name)) }, label(name));
    chip.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      chip.ariaPressed = String(!hidden.has(name));
      refresh();
    });
    return chip;
  }));
}

const table = new Table(at("grid"), open);
const curves = new Curves(at("panels"), open);
const models = new Set(data.problem.map((_, row) => String(cell("model", row))));
fill("model", [...models].sort((a, b) => a.localeCompare(b, "en", { numeric: true })));
const present = new Set(data.problem.map((_, row) => cell("status", row)));
fill("status", data.statuses.filter((status) => present.has(status)));
let waiting = 0;
at("text").addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(refresh, 150);
});
["model", "status"].forEach((id) => at(id).addEventListener("change", refresh));
document.querySelectorAll("input[name=kind]").forEach((radio) => radio.addEventListener("change", refresh));
at("wide").addEventListener("change", () => table.choose(at("wide").checked));
at("clear").addEventListener("click", () => {
  at("text").value = at("model").value = at("status").value = "";
  hidden.clear();
  makeChips();
  refresh();
});
makeChips();
refresh();
