"""What ``--help`` and ``--version`` of each command say, without loading what the command needs.

Keys, their defaults and their meaning stand in ``conf/*.yaml``, options of strategies in their
dataclasses; here is what neither says.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from rematbench.cli.conf_keys import (
    assignments,
    choices_of,
    chosen_groups,
    conf_texts,
    group_keys,
    read_keys,
)

_WIDTH = 100
_INDENT = 30


@dataclass(frozen=True)
class Help:
    """A command's help.

    Attributes:
        what: one sentence.
        usage: lines, without the command's name.
        config: its file in ``conf``, or None where it takes arguments rather than keys.
        groups: of ``conf``, which its files choose from.
        arguments: (as written, meaning), where it has no file.
        examples: three command lines, without the command's name.
        more: where the rest is.
    """

    what: str
    usage: tuple[str, ...]
    examples: tuple[str, str, str]
    more: str
    config: str | None = None
    groups: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()


_JOB = ("model", "strategy", "costmodel", "device", "link")
HELPS = {
    "rematbench": Help(
        "Plan one training step within a memory budget, simulate and (device=cpu, cuda) execute "
        "the plan, and print what it costs as a row.",
        ("KEY=VALUE ...", "-m KEY=VALUE,VALUE ...   (a sweep: every combination)"),
        (
            "model=resnet50 batch_size=16 resolution=96 strategy=ap_greedy budget=0.7",
            "model=python model.target=mymodel:make strategy=anytime budget=2GiB device=cpu",
            "-m model=vgg16,unet strategy='glob(ap_*)' budget=0.9,0.7,0.5",
        ),
        "docs/start.md, docs/guide.md; docs/sweeps.md on sweeps, launchers and the cache",
        "config",
        (*_JOB, "experiment", "launch"),
    ),
    "rematbench-fit": Help(
        "Find a plan with which a PyTorch model trains within a memory, and print the code to "
        "paste.",
        ("memory=8GiB KEY=VALUE ...",),
        (
            "model=resnet50 batch_size=64 memory=8GiB",
            "model=python model.target=mymodel:make memory=16GiB reserve=2GiB device=cuda",
            "model=unet memory=4GiB largest_batch=true strategies=[ap_greedy,dtr]",
        ),
        "docs/train.md",
        "fit",
        _JOB,
    ),
    "rematbench-max-batch": Help(
        "Find the largest batch (or resolution) that a strategy can train within a memory at no "
        "more than one forward pass of overhead.",
        ("memory=16GiB KEY=VALUE ...", "-m KEY=VALUE,VALUE ...   (a sweep)"),
        (
            "model=vgg16 strategy=anytime memory=16GiB",
            "model=unet vary=resolution least=64 step=32 memory=8GiB strategy=ap_greedy",
            "-m model=vgg16,mobilenet_v1 strategy=checkpoint_all,linearized_greedy",
        ),
        "docs/guide.md",
        "max_batch",
        (*_JOB, "experiment", "launch"),
    ),
    "rematbench-record": Help(
        "Record one training step of a PyTorch model as a log of operator events, on which "
        "model=simrd_log plans.",
        ("out=F.log.gz KEY=VALUE ...",),
        (
            "model=tree_lstm out=logs/tree_lstm.log",
            "model=unet batch_size=2 device=cuda out=unet.log.gz",
            "model=python model.target=mymodel:make out=mine.log.gz",
        ),
        "docs/guide.md",
        "record",
        ("model", "device"),
    ),
    "rematbench-suite": Help(
        "Plan by many strategies side by side and measure their plans in turns, model by model, "
        "in the minutes that a device is at hand.",
        ("KEY=VALUE ...",),
        (
            "seconds=450",
            "cases=cpu device=cpu seconds=1500",
            "cases.models=[[model=resnet50,batch_size=64]] cases.budgets=[0.7] out=runs/mine",
        ),
        "docs/gpu.md, docs/sweeps.md",
        "suite",
        ("cases", "device"),
    ),
    "rematbench-report": Help(
        "Collect rows of runs and sweeps into a leaderboard, HTML pages and figures.",
        ("RUNS ... [--figure NAME ...|--all] [--leaderboard] [--out DIR]",),
        (
            "runs/sweeps/2026-01-31_12-00-00",
            "runs/figures/simrd_fig2 --figure simrd_fig2",
            "runs --all --out site",
        ),
        "docs/figures.md; docs/papers has a page per paper and its figures",
        arguments=(
            ("RUNS", "run or sweep folders, or row.json files"),
            ("--figure NAME", "overhead, or a figure of a paper such as simrd_fig4; repeatable"),
            ("--all", "every figure that the rows allow"),
            ("--leaderboard", "the field: performance profiles, who wins where, certified gaps"),
            ("--out DIR", "output folder (runs/report)"),
        ),
    ),
    "rematbench-instances": Help(
        "List the library's problems, solve them by any strategy, send in better plans or bounds, "
        "verify all records, compare two strategies.",
        (
            "list|check [SELECTION]",
            "solve SELECTION strategy=NAME KEY=VALUE ...   (as rematbench -m)",
            "submit PLAN|BOUND|RUN|SWEEP ... [by=NAME]",
            "compare A B [SELECTION]",
        ),
        (
            "list REMATLIB-100 status=open,hard",
            "solve ALL family=chains ops=-500 strategy=dtr",
            "submit runs/instances/mine by='A. Person'",
        ),
        "docs/instances.md; instances/RULES.md says what a plan may do",
        arguments=(
            ("SELECTION", "REMATLIB-100, ALL, or names of instances or graphs, or patterns"),
            ("family=A,B", "those of these families; status=easy,closed,hard,open; ops=100-1000"),
            ("strategy=NAME", "and any other key of rematbench but model and budget"),
            ("part=k/n", "of solve: every n-th graph from the k-th on"),
            ("PLAN", "*.plan.json or *.plan.json.gz for a graph of the library"),
            ("BOUND", "*.bound.json: what another program proved (docs/instances.md)"),
            ("RUN, SWEEP", "folders with row.json, plan.json: of these, bounds count, too"),
            ("by=NAME", "who sends it"),
            ("A, B", "records; or rows of the library: solve's folder, or FOLDER:STRATEGY of it"),
            ("library=DIR", "the library (instances)"),
        ),
    ),
    "rematbench-verify": Help(
        "Replay a plan file in the reference simulator and print its row; exits 1 where the plan "
        "is invalid or above its budget.",
        ("GRAPH PLAN [link=pcie4] [host=64GiB]",),
        (
            "runs/a/graph.json.gz runs/a/plan.json",
            "mine.graph.json mine.plan.json",
            "big.graph.json.gz big.plan.json.gz",
        ),
        "docs/guide.md, on the files",
        arguments=(
            ("GRAPH", "*.graph.json or *.graph.json.gz"),
            ("PLAN", "*.plan.json or *.plan.json.gz"),
            ("link=pcie4", "of a plan for two memories; link.out, link.in, ... as of rematbench"),
            ("host=64GiB", "the most bytes that it may have on the host"),
        ),
    ),
}


def version_text() -> str:
    """Our version and PyTorch's.

    >>> version_text().split()[0]
    'rematbench'
    """
    found = []
    for name in ("rematbench", "torch"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} is not installed")
    return ", ".join(found)


def help_text(name: str, given: Sequence[str] = ()) -> str:
    """A command's help.

    Args:
        name: of the command.
        given: its arguments: the options of a strategy or model that they choose are listed, too.
    """
    page = HELPS[name]
    parts = [textwrap.fill(page.what, _WIDTH)]
    parts.append(_section("Usage", [f"  {name} {line}" for line in page.usage]))
    if page.config is None:
        parts.append(_section("Arguments", _table(page.arguments)))
    else:
        parts += _keys(page, dict(assignments(given)))
    parts.append(_section("Examples", [f"  {name} {line}" for line in page.examples]))
    parts.append(_section("More", _table(_more(name, page))))
    return "\n\n".join(parts)


def _more(name: str, page: Help) -> list[tuple[str, str]]:
    found = []
    if page.config is not None:
        words = "the configuration that a command line makes"
        found.append(("--cfg job KEY=VALUE ...", words))
    if "model" in page.groups:
        which = "model=unet" if "strategy" not in page.groups else "strategy=dtr model=unet"
        found.append((f"--help {which}", "what is chosen, option by option"))
    found.append(("--version", "ours and PyTorch's"))
    return [*found, ("The rest", page.more)]


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f"{title}:", *lines])


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    lines = []
    for left, right in rows:
        first = f"  {left}  ".ljust(_INDENT)
        wrapped = textwrap.wrap(right, _WIDTH - _INDENT)
        if wrapped and len(first) <= _INDENT:
            first += wrapped.pop(0)
        lines += [first, *(" " * _INDENT + line for line in wrapped)]
    return [line.rstrip() for line in lines]


def _keys(page: Help, chosen: dict[str, str]) -> list[str]:
    """The choices, the keys, and the options of what is chosen."""
    assert page.config is not None
    texts = conf_texts(page.config)
    parts = [_section("Choices", _table(_choices(page.groups, chosen_groups(texts))))]
    keys: dict[str, tuple[str, str]] = {}
    for text in texts:
        for key, default, meaning in read_keys(text):
            if key == "budget" and "memory" in keys:
                continue  # memory stands for it
            keys.setdefault(key, (f"{key}={default.replace('???', '...')}", meaning))
    parts.append(_section("Keys, with their defaults", _table(keys.values())))
    for group in ("model", "strategy"):
        if group in page.groups and group in chosen:
            parts += _about(chosen[group]) if group == "strategy" else ()
            parts.append(_options(group, chosen[group]))
    return parts


def _about(strategy: str) -> Iterable[str]:
    """What a strategy's card says of it."""
    from rematbench.strategies.registry import cards

    card = cards().get(strategy)
    if card is None:
        return
    rows = [("what it solves", card.problem), ("guarantee", card.guarantee)]
    rows.append(("applies to", card.scope))
    if card.paper:
        rows.append(("published", card.paper.cite()))
    if card.page:
        rows.append(("page", f"docs/papers/{card.page}"))
    yield _section(f"strategy={strategy}", _table((key, _plain(said)) for key, said in rows))


def _choices(groups: Sequence[str], defaults: dict[str, str]) -> list[tuple[str, str]]:
    return [
        (f"{group}={defaults.get(group, 'null')}", ", ".join(choices_of(group))) for group in groups
    ]


def _options(group: str, name: str) -> str:
    """The options of a chosen strategy or model."""
    title = f"Options of {group}={name}"
    if name not in choices_of(group):
        return f"{title}: there is none of that name"
    rows = [(f"{key}={default}", _plain(page)) for key, default, page in group_keys(group, name)]
    return _section(title, _table(rows) if rows else ["  none"])


def _plain(text: str) -> str:
    """A docstring's words for people who do not write Python."""
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", text).replace("`", "")
    for python, ours in (("None", "null"), ("True", "true"), ("False", "false")):
        text = re.sub(rf"\b{python}\b", ours, text)
    return text
