// Judges plans of the library in a browser (verify.html) and in node; no dependency, no network.
// The rules are those of RULES.md, statement by statement what verify.py says, too.
"use strict";

// A plan is not valid: at which statement (their count: at the end), and why.
class Refused extends Error {
  constructor(statement, reason) {
    super(`statement ${statement}: ${reason}`);
    this.statement = statement;
    this.reason = reason;
  }
}

// A graph or plan file's document from its bytes, plain or gzip.
async function documentOf(bytes, kind, name) {
  let text;
  try {
    if (bytes[0] === 0x1f && bytes[1] === 0x8b) {
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      bytes = await new Response(stream).arrayBuffer();
    }
    text = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new Error(`${name}: cannot be read (${error.message}); fetch the file again`);
  }
  if (kind && text?.format !== `rematbench-${kind}`)
    throw new Error(`${name}: no ${kind}; its "format" must be "rematbench-${kind}"`);
  if (text?.version !== 1) throw new Error(`${name}: version ${text?.version}; this reads version 1`);
  if (text.format === "rematbench-plan") checkPlan(text, name);
  return text;
}

const KEYS = ["format", "version", "graph", "strategy", "budget_bytes", "statements"];

// Is a plan's document as RULES.md has it?
function checkPlan(plan, name) {
  const budget = plan.budget_bytes ?? 0;
  const sound = Number.isSafeInteger(budget) && budget >= 0 && Array.isArray(plan.statements)
    && typeof plan.graph === "string" && ["string", "undefined"].includes(typeof plan.strategy);
  if (!sound || !Object.keys(plan).every((key) => KEYS.includes(key)))
    throw new Error(`${name}: no plan as RULES.md has it: its keys are ${KEYS.join(", ")}`);
}

// Per write of an implementation, the value whose storage it takes over, or -1.
function takenBy(writes, reads, over, size) {
  const taken = writes.map(() => -1);
  for (const value of over) {
    const place = writes.findIndex((w, k) => taken[k] < 0 && size[w] === size[value]);
    if (place < 0 || !reads.includes(value))
      throw new Error("overwrites what is not read, or what no write can take over");
    taken[place] = value;
  }
  return taken;
}

// A graph in numbers: values and ops by their places in the file.
function netOf(graph) {
  const values = new Map(graph.values.map((value, number) => [value.name, number]));
  const ops = new Map(graph.ops.map((op, number) => [op.name, number]));
  const size = graph.values.map((value) => value.bytes);
  const number = (name) => {
    if (!values.has(name)) throw new Error(`the graph has no value ${JSON.stringify(name)}`);
    return values.get(name);
  };
  const ways = graph.ops.map((op, place) => {
    const writes = op.writes.map(number);
    const made = new Map();
    for (const each of op.implementations ?? [op]) {
      const source = each.replays || (op.random ? op.name : null);
      const reads = [...new Set(each.reads.map(number))].sort((a, b) => a - b);
      const way = {
        op: place,
        reads,
        writes,
        taken: takenBy(writes, reads, (each.overwrites ?? []).map(number), size),
        cost: each.cost,
        workspace: each.workspace_bytes ?? 0,
        draws: source === null ? -1 : ops.get(source),
      };
      made.set(op.implementations ? each.name : "default", way);
      if (!made.has(null)) made.set(null, way);
    }
    return made;
  });
  return {
    name: graph.name,
    size,
    resident: graph.values.map((value) => value.resident === true),
    values,
    ops,
    ways,
    valueNames: graph.values.map((value) => value.name),
    opNames: graph.ops.map((op) => op.name),
    outputs: graph.outputs.map(number),
    random: graph.ops.map((op) => op.random === true),
    state: graph.random_state_bytes ?? 0,
    loss: graph.ops.findIndex((op) => op.phase === "loss"),
  };
}

// What a statement names: an implementation, or the value that it frees.
function stepOf(net, number, statement) {
  const words = Array.isArray(statement) ? statement : [];
  const said = words.every((word) => typeof word === "string") ? words : [];
  if (said[0] === "compute" && (said.length === 2 || said.length === 3)) {
    const way = net.ways[net.ops.get(said[1])]?.get(said.length === 3 ? said[2] : null);
    if (!way) throw new Refused(number, `compute of ${said.slice(1).join(" by ")}, which there is not`);
    return way;
  }
  if (said[0] === "free" && said.length === 2) {
    if (!net.values.has(said[1])) throw new Refused(number, `free of ${said[1]}, which there is not`);
    return net.values.get(said[1]);
  }
  const text = JSON.stringify(statement).slice(0, 80);
  throw new Refused(number, `${text} is neither a compute nor a free`);
}

// Bytes while an implementation runs, and after; `live` is brought up to date.
function run(net, number, way, live, memory) {
  for (const value of way.reads)
    if (!live[value])
      throw new Refused(number, `op ${net.opNames[way.op]} reads ${net.valueNames[value]}, which is not live`);
  let running = memory + way.workspace;
  way.writes.forEach((value, k) => {
    if (way.taken[k] < 0) {
      running += net.size[value];
      memory += net.size[value];
    } else live[way.taken[k]] = false;
    if (live[value]) memory -= net.size[value]; // the new copy replaces the old one
    live[value] = true;
  });
  return [running, memory];
}

// Adds the states of the random generator that repeated draws need.
function addStates(net, steps, during) {
  const places = new Map();
  steps.forEach((step, number) => {
    if (step.draws >= 0) places.set(step.draws, [...(places.get(step.draws) ?? []), number]);
  });
  for (const [first, ...again] of places.values()) {
    if (!again.length) continue;
    for (let number = first; number < steps.length; number++) during[number] += net.state;
    for (const number of again) during[number] += net.state;
  }
}

function checkDraws(net, ops) {
  const done = new Set();
  let last = -1;
  ops.forEach((op, number) => {
    if (op < 0 || !net.random[op] || done.has(op)) return;
    if (op < last)
      throw new Refused(number, `random op ${net.opNames[op]} first runs out of program order`);
    last = op;
    done.add(op);
  });
}

// Replays a plan: its peak (bytes), cost, recomputations, bytes during each statement, per statement
// the op that it computes or -1, and whether ops first run in program order (as those of records do).
// Throws Refused where it is not valid.
function judge(net, statements) {
  const steps = statements.map((statement, number) => stepOf(net, number, statement));
  const live = [...net.resident];
  let memory = net.size.reduce((sum, bytes, v) => sum + (net.resident[v] ? bytes : 0), 0);
  let [peak, cost] = [memory, 0];
  const during = new Array(steps.length);
  steps.forEach((step, number) => {
    if (typeof step === "object") {
      [during[number], memory] = run(net, number, step, live, memory);
      cost += step.cost;
      return;
    }
    if (net.resident[step] || !live[step]) {
      const what = net.resident[step] ? "is resident and stays" : "is not live";
      throw new Refused(number, `free of ${net.valueNames[step]}, which ${what}`);
    }
    live[step] = false;
    during[number] = memory;
    memory -= net.size[step];
  });
  for (const value of net.outputs)
    if (!live[value])
      throw new Refused(steps.length, `output ${net.valueNames[value]} is not live at the end`);
  const ops = steps.map((step) => (typeof step === "object" ? step.op : -1));
  if (net.state) addStates(net, steps, during);
  checkDraws(net, ops);
  for (const bytes of during) if (bytes > peak) peak = bytes;
  const computed = ops.filter((op) => op >= 0);
  const first = [...new Set(computed)];
  const inOrder = first.every((op, k) => k === 0 || first[k - 1] < op);
  return { peak, cost, recomputations: computed.length - first.length, during, ops, inOrder };
}

// A plan as an SVG: its computes (program order upwards, the plan from left to right; those that
// compute again in the second colour), and below the bytes during each statement, with the budget.
function picture(net, verdict, budget, width = 900) {
  const [high, low, gap] = [220, 120, 14];
  const count = Math.max(1, verdict.ops.length);
  const x = (number) => ((number / count) * width).toFixed(1);
  const y = (op) => (high - ((op + 1) / net.ops.size) * high).toFixed(1);
  const seen = new Set();
  const marks = ["", ""];
  const size = Math.max(1, width / count).toFixed(1);
  const tall = Math.max(1.5, high / net.ops.size).toFixed(1);
  const drawn = new Set();
  verdict.ops.forEach((op, number) => {
    if (op < 0) return;
    const again = seen.has(op) ? 1 : 0;
    seen.add(op);
    const mark = `M${Math.round(x(number))} ${Math.round(y(op))}`;
    if (drawn.has(again + mark)) return; // what falls on one pixel is drawn once
    drawn.add(again + mark);
    marks[again] += `M${x(number)} ${y(op)}h${size}v${tall}h-${size}z`;
  });
  const top = Math.max(verdict.peak, budget ?? 0, 1);
  const bottom = high + gap + low;
  const level = (bytes) => (bottom - (bytes / top) * low).toFixed(1);
  const columns = new Map();
  verdict.during.forEach((bytes, number) => {
    const column = Math.floor((number / count) * width);
    columns.set(column, Math.max(columns.get(column) ?? 0, bytes));
  });
  let line = `M0 ${bottom}`;
  for (const [column, bytes] of columns) line += `L${column} ${level(bytes)}`;
  line += `L${width} ${bottom}z`;
  const limit = budget ? `<path class="budget" d="M0 ${level(budget)}H${width}"/>` : "";
  return `<svg class="plan" viewBox="0 0 ${width} ${bottom + 2}" role="img" aria-label="the plan">`
    + `<rect class="box" width="${width}" height="${high}"/><path class="first" d="${marks[0]}"/>`
    + `<path class="again" d="${marks[1]}"/><path class="bytes" d="${line}"/>${limit}</svg>`;
}

if (typeof module !== "undefined") module.exports = { Refused, documentOf, judge, netOf, picture };
