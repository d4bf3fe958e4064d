"""``docs/benchmarks.md`` from the records in ``runs/benchmarks``: run as a module, it writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.figures import RECORDS, record_of
from rematbench.rows.provenance import HOUSE

# Name: what it measures. The short ones come first, the papers' figures (some 40 minutes) last.
ALL = {
    "report": "the report of 10,000 rows",
    "commands": "the quickstart sweep, and one that is resumed",
    "site": "`check` of all records, `make docs`, the largest page of the library",
    "startup": "what a command costs where nothing is planned, beside 4f1d762",
    "kernels": "compiling the kernels of the quickstart's planners, beside c7868bd",
    "train": "training with a plan beside eager training",
    "ranks": "compiled blocks on several ranks beside FSDP2 alone",
    "online": "the online runtime beside eager training",
    "spine": "simulation, capture and execution",
    "dtr": "DTR's runtime on logs",
    "planners": "planners without a solver",
    "scale": "time and memory of planners against ops",
    "offload": "`hybrid`: overheads, gaps and waiting where values may wait on the host",
    "segments": "what the segments of Feng and Huang cut off, by their accounting",
    "baselines62": "Checkmate's baselines with a fixed S and the R of least cost (its section 6.2)",
    "causes": "why printed numbers differ: solvers, batches in steps, products, what counts",
    "authors_baselines": "Checkmate's baselines as its authors' program keeps segments",
    "capture": "captures of published sizes",
    "ops": "PyTorch's own list of ops: captured, executed, judged",
    "monet_sizes": "MONeT's programs of two networks with the products of its published code",
    "monet_costs": "MONeT's figures where operators cost otherwise: implementations, convolutions",
    "monet_proofs": "how long HiGHS takes for the programs that MONeT's paper gave to Gurobi",
    "gist_cpu": "what Gist's encodings cost where they run",
    "log_costs": "DTR on DenseNet-BC's logs: three costs of its operators, two forms of the model",
    "lru_ties": "LRU on simrd's toy chain: which of equally stale tensors goes",
    "torch_planners": "PyTorch's planners beside ours",
    "checkmate": "`anytime`: seconds, gaps and memory",
    "proven": "`anytime` beside its earlier self, where that proved its plan in seconds",
    "engines": "searches by stages, by intervals and joint, each alone in the same CPU seconds",
    "before": "`anytime` beside the search that it was at 4f1d762: costs and gaps",
    "monet": "`monet`: gaps, overheads, ablations",
    "compiling": "what our backend takes to compile, beside `aot_eager`",
    "compile": "`torch.compile` with our backend",
    "step": "one budget for the whole step under `torch.compile`",
    "paper_figures": "`make figures` from an empty cache",
}
PAGE = Path("docs/benchmarks.md")
HEAD = """\
# Benchmarks

Our own speed and exactness. `make benchmarks` measures all of it, one after the other, and goes on
where it was stopped; `make benchmark-NAME` measures one. Every figure stands beside the number that
was asked for, where one was: *missed* is what it says. Nothing outside of the repository is needed,
but for `dtr`'s golden rows: its record says where they were left out. Some run earlier commits.
`python -m benchmarks --list` names what a clone lacks. This page is made from the records in
`runs/benchmarks` by `python -m benchmarks.table`, and a test holds it against them.

*Load* is how many processes wanted a core when a benchmark began: on a busy machine seconds by the
clock say little. A commit that ends in *-dirty* is of code that was not committed.
"""


def page() -> str:
    """The page's text."""
    records = {name: record_of(name) for name in ALL}
    missed = [
        f"| {name} | {row['figure']} | {_value(row)} | {_asked(row)} |"
        for name, record in records.items()
        for row in (record or {}).get("figures", ())
        if not row["kept"]
    ]
    lines = [
        HEAD,
        "| benchmark | measures | figures | missed | seconds | date | commit | machine | load |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(name, record) for name, record in records.items()),
        *("", "## Missed", "", "| benchmark | figure | value | asked for |", "|---|---|---|---|"),
        *missed,
    ]
    for name, record in records.items():
        if record is not None and "figures" in record:
            lines += _section(name, record)
    return "\n".join(lines) + "\n"


def _section(name: str, record: dict[str, Any]) -> list[str]:
    """A benchmark's own section: its picture, its remarks, its figures."""
    lines = ["", f"## {name}", "", f"`python -m benchmarks.{name}`: {ALL[name]}.", ""]
    if (HOUSE / RECORDS / f"{name}.png").exists():
        lines += [f"![{ALL[name]}](../{RECORDS}/{name}.png)", ""]
    for what, why in record.get("reasons", {}).items():
        lines += [f"- `{what}` grows faster, as its paper does: {why}."]
    if "left_out" in record:
        lines += [f"Left out: {record['left_out']}.", ""]
    lines += _without_a_plan(record.get("without_a_plan", {}))
    lines += [""] if "reasons" in record else []
    lines += ["| figure | value | asked for |", "|---|---|---|"]
    for row in record["figures"]:
        asked = _asked(row) + ("" if row["kept"] else " (missed)")
        lines.append(f"| {row['figure']} | {_value(row)} | {asked} |")
    return lines


def _without_a_plan(refused: dict[str, str]) -> list[str]:
    """Why there is no plan: each reason once, with all that gave it."""
    by_reason: dict[str, list[str]] = {}
    for title, why in refused.items():
        by_reason.setdefault(re.sub(r"\d[\d,.]*", "N", why), []).append(title)
    return [
        f"- No plan: {'; '.join(f'`{title}`' for title in titles)}: {refused[titles[0]]}"
        for titles in by_reason.values()
    ]


def _line(name: str, record: dict[str, Any] | None) -> str:
    if record is None:
        return f"| {name} | {ALL[name]} | not measured yet | | | | | | |"
    figures = record.get("figures", [])
    missed = sum(not row["kept"] for row in figures)
    link = f"[{name}](#{name})" if figures else name
    cells = (
        *(
            link,
            ALL[name],
            len(figures),
            missed,
            f"{record['seconds']:.0f}" if "seconds" in record else "",
        ),
        *(record["utc"].partition("T")[0], record["commit"] or "not a commit"),
        *(record.get("machine", ""), record.get("load_before", "")),
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _value(row: dict[str, Any]) -> str:
    return f"{row['value']:,.4g} {row.get('unit', '')}".strip()


def _asked(row: dict[str, Any]) -> str:
    if row["bound"] is None:
        return ""
    return f"{'at least' if row.get('at_least') else 'at most'} {row['bound']:,.4g}"


def write_page() -> Path:
    """Write the page; its path."""
    path = HOUSE / PAGE
    path.write_text(page())
    return path


if __name__ == "__main__":
    print(write_page())
