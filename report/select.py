"""Which rows a figure is drawn from: those that its experiment made.

A row says in ``extra`` which experiment asked for it (and which group of its sweeps), and a figure
takes the rows of the experiment of its name, whatever they hold: another batch, budget or model
changes what is drawn, not whether. Where there are none, rows of an experiment that runs the same
jobs do (:data:`FED_BY`); at last rows that no experiment asked for, made by hand or by a version
that marked none. Of these two kinds a figure takes what looks like its own: :data:`_GUESSES` is the
only place that guesses by batch, cost model or length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import ceil, isclose, log2, sqrt
from typing import Any

from rematbench.report import printed
from rematbench.report.collect import Record
from rematbench.rows.row import Row, details

FED_BY = {
    **{f"checkmate_fig5{panel}": ("checkmate_fig5",) for panel in "abc"},
    "simrd_fig6": ("simrd_fig4",),
    "monet_table1": ("monet_fig3",),
    "monet_table2": ("monet_table5", "monet_table6"),
    "monet_table5": ("monet_table6",),
    "monet_table6": ("monet_table5",),
    "joins_table1": ("joins_table2",),
}
"""Experiments whose jobs are a figure's, too."""
_OF_ALL_BATCHES = ("checkmate_fig6",)  # which is about them
Rows = Sequence[Record]
Guess = Callable[[Rows], list[Record]]


@dataclass(frozen=True)
class Selection:
    """What a figure is drawn from.

    Attributes:
        records: its rows, in the order given.
        left_out: which rows of its experiment are not among them, in words.
    """

    records: list[Record]
    left_out: tuple[str, ...] = ()


def select(figure: str, records: Rows) -> Selection:
    """The rows that a figure is drawn from.

    A network that its experiment ran at several batches is drawn at that of its last row: one curve
    shows one batch.
    """
    own = [r for r in made_by(figure, records) if not r.row["extra"].get("bad_config")]
    if own:
        return Selection(own) if figure in _OF_ALL_BATCHES else _of_last_batches(own)
    guess = _GUESSES[figure]
    for experiment in FED_BY.get(figure, ()):
        lent = guess(made_by(experiment, records))
        if lent:
            return Selection(lent)
    return Selection(guess([record for record in records if not record.marks]))


def made_by(experiment: str, records: Rows) -> list[Record]:
    """The rows that an experiment asked for."""
    return [r for r in records if any(mark.experiment == experiment for mark in r.marks)]


def _of_last_batches(records: Rows) -> Selection:
    rows = [record.row for record in records]
    last = {row["model"]: row["batch_size"] for row in rows if row["batch_size"] is not None}
    is_other = [row["batch_size"] not in (None, last.get(row["model"])) for row in rows]
    kept = [record for record, other in zip(records, is_other, strict=True) if not other]
    others = Counter(
        f"{row['model']} at batch {row['batch_size']}"
        for row, other in zip(rows, is_other, strict=True)
        if other
    )
    return Selection(kept, tuple(f"{name} ({count} rows)" for name, count in others.items()))


# What looks like a figure's row


def _each(is_its: Callable[[Row], bool]) -> Guess:
    return lambda records: [record for record in records if is_its(record.row)]


def _chain(budget: Callable[[int], float]) -> Guess:
    def is_its(row: Row) -> bool:
        length = row["extra"].get("length")
        if row["model"] != "toy_chain" or length is None or length == printed.TRACE_LENGTH:
            return False
        return bool(row["budget_bytes"] == ceil(budget(length)))

    return _each(is_its)


def _trace(heuristic: str, budget: int) -> Guess:
    def is_its(row: Row) -> bool:
        extra = row["extra"]
        wanted = (printed.TRACE_LENGTH, heuristic, "banish")
        found = tuple(extra.get(key) for key in ("length", "heuristic", "dealloc"))
        return row["model"] == "toy_chain" and found == wanted and row["budget_bytes"] == budget

    return _each(is_its)


def _log(heuristics: Sequence[str], **options: Any) -> Guess:
    wanted = {"judge": "dtr", "semantics": "simrd", "thrash_limit": 3.0} | options

    def is_its(row: Row) -> bool:
        extra = row["extra"]
        return (
            row["strategy"] == "dtr"
            and row["model"] != "toy_chain"
            and row["budget_fraction"] is not None
            and extra.get("heuristic") in heuristics
            and all(extra.get(key) == value for key, value in wanted.items())
        )

    return _each(is_its)


def _is_checkmate(row: Row) -> bool:
    """Is it a job under the paper's accounting (equation 2), and not a search for a batch?"""
    extra = row["extra"]
    return extra.get("accounting") == "checkmate" and "max_batch" not in extra


def _of_checkmate(is_its: Callable[[Row], bool]) -> Guess:
    return _each(lambda row: _is_checkmate(row) and is_its(row))


def _tradeoff(*networks: tuple[str, int]) -> Guess:
    return _of_checkmate(
        lambda row: (
            (row["model"], row["batch_size"]) in networks
            and row["costmodel"] in ("roofline", "profiled")
            and row["budget_bytes"] is not None
            and row["variant"] != "randomized"
        )
    )


def _is_ratio(row: Row) -> bool:
    batch = printed.TABLE2_BATCHES.get(printed.paper_name(str(row["model"])))
    return row["costmodel"] == "flops" and bool(row["budget_bytes"]) and row["batch_size"] == batch


def _is_gap(row: Row) -> bool:
    """Of a chain: the integer program of (9) as printed, or unpartitioned, and its relaxation."""
    printed_ = row["strategy"] == "checkmate_ilp" and row["variant"] in ("9", "unpartitioned")
    return printed_ and row["model"] == "unit_chain" and row["budget_bytes"] is not None


def _is_rounded(row: Row) -> bool:
    return (
        row["costmodel"] != "flops"
        and row["budget_bytes"] == printed.FIG7_BUDGET
        and row["strategy"] in ("checkmate_rounding", "checkmate_ilp", "anytime")
    )


def _is_architecture(row: Row) -> bool:
    kept = row["strategy"] == "checkpoint_all" and row["budget_bytes"] is None
    return kept and row["model"] in printed.ARCHITECTURES


def _is_residual(row: Row) -> bool:
    depth = str(row["model"]).removeprefix("resnet")
    known = depth.isdigit() and int(depth) in printed.RESNETS and row["batch_size"] == 1
    kept = row["strategy"] == "checkpoint_all" and row["extra"].get("accounting") == "checkmate"
    return known and kept


def _groups(of: Callable[[Row], Hashable], enough: Callable[[list[Row]], bool]) -> Guess:
    """Groups of rows that hold enough to be a figure's; rows whose group is None are in none."""

    def chosen(records: Rows) -> list[Record]:
        groups: dict[Hashable, list[Row]] = {}
        for record in records:
            groups.setdefault(of(record.row), []).append(record.row)
        good = {group for group, rows in groups.items() if group is not None and enough(rows)}
        return [record for record in records if of(record.row) in good]

    return chosen


def _slots(rows: Sequence[Row]) -> set[int]:
    return {details(row)["slots"] for row in rows}


def _join(row: Row) -> tuple[str, int] | None:
    lengths = row["extra"].get("lengths")
    return printed.shape(lengths) if lengths and row["strategy"] == "join_dp" else None


def _against_memory(records: Rows) -> list[Record]:
    """Lengths of which some model was planned within many numbers of slots."""
    joins = [r for r in records if _join(r.row) and r.row["status"] == "ok"]
    many = _groups(_join, lambda rows: len(_slots(rows)) >= 8)(joins)
    lengths = {(_join(record.row) or ("", 0))[1] for record in many}
    return [record for record in joins if (_join(record.row) or ("", 0))[1] in lengths]


def _against_length(records: Rows) -> list[Record]:
    """Numbers of slots that many lengths were planned within."""
    wanted = (7, 9, 11, 13)
    ok = [r for r in records if _join(r.row) and r.row["status"] == "ok"]
    its = [record for record in ok if details(record.row)["slots"] in wanted]
    return _groups(lambda row: details(row)["slots"], lambda rows: len(_lengths(rows)) >= 4)(its)


def _lengths(rows: Sequence[Row]) -> set[int]:
    """The L of joins."""
    return {(_join(row) or ("", 0))[1] for row in rows}


def _is_balanced(row: Row) -> bool:
    lengths = row["extra"].get("lengths") or []
    balanced = len(lengths) == 3 and len(set(lengths)) == 1
    return balanced and row["strategy"] in ("join_dp", "equiv_chain")


def _is_toy(row: Row) -> bool:
    extra = row["extra"]
    return (
        row["strategy"] == "join_dp"
        and extra.get("lengths") == [4, 10, 12]
        and extra.get("slots") == 9
    )


def system(row: Row) -> str | None:
    """What a row is called in MONeT's figures; None: it is not in them."""
    if row["strategy"] == "anytime_joint":
        variant = row["variant"]
        return {"full": row["strategy"], None: None}.get(variant, f"anytime_joint {variant}")
    known = row["strategy"] in ("checkpoint_all", "gist", *_CHECKMATES)
    return row["strategy"] if known else None


def _monet(is_its: Callable[[Row], bool]) -> Guess:
    """Jobs of a network at MONeT's batch, under full accounting."""
    batches = printed.MONET_BATCHES
    return _each(
        lambda row: (
            row["model"] in batches
            and row["batch_size"] == batches[row["model"]]
            and row["extra"].get("accounting") == "full"
            and row["costmodel"] in ("roofline", "profiled")
            and is_its(row)
        )
    )


def _compared(systems: Sequence[str], least: int) -> Guess:
    """Networks that so many of these systems were asked for: other figures run fewer."""
    its = _monet(lambda row: row["model"] != "unet3d" and system(row) in systems)
    enough = _groups(lambda row: row["model"], lambda rows: len({*map(system, rows)}) >= least)
    return lambda records: enough(its(records))


_PARTS = ("noop", "conv", "output", "intermediate")
_ABLATION = (*(f"anytime_joint {part}" for part in _PARTS), "anytime_joint")
_CHECKMATES = ("checkmate_d", "checkmate_o", "anytime", "anytime_joint", "monet")
_SOLVED = ("anytime", "anytime_joint noop", "anytime_joint")


def _solved(models: Sequence[str]) -> Guess:
    """Budgets that every solver was asked for."""
    its = _monet(
        lambda row: (
            system(row) in _SOLVED and row["model"] in models and row["budget_fraction"] is not None
        )
    )
    enough = _groups(
        lambda row: (row["model"], row["budget_fraction"]),
        lambda rows: len({*map(system, rows)}) == len(_SOLVED),
    )
    return lambda records: enough(its(records))


def _is_case(row: Row) -> bool:
    ours = ("anytime_joint", "anytime_joint noop")
    variant = row["budget_fraction"] == 0.54 and system(row) in ours
    return row["model"] == "resnet50" and (variant or system(row) == "checkpoint_all")


def _is_bar(row: Row) -> bool:
    asked = row["budget_fraction"]
    near = asked is not None and isclose(asked, printed.FIG4_RATIO, rel_tol=1e-5)
    return near and row["model"] != "unet3d" and system(row) in _ABLATION


def _is_size(row: Row) -> bool:
    extra = row["extra"]
    if row["model"] not in printed.MONET_SIZES:
        return False
    if row["strategy"] == "monet":
        return "presolved_rows" in extra
    return is_printed(row) and "rows" in extra


def is_printed(row: Row) -> bool:
    """Is it of Checkmate's problem (9) as printed? Its plans call it so."""
    return row["strategy"] == "checkmate_ilp" and row["variant"] in ("9", "paper")


def _of_activations(is_its: Callable[[Row], bool]) -> Guess:
    return _each(
        lambda row: (
            row["extra"].get("accounting") == "activations"
            and row["budget_bytes"] is None
            and is_its(row)
        )
    )


def _is_cut(row: Row) -> bool:
    line = printed.FENG_HUANG.get(str(row["model"]))
    return line is not None and row["batch_size"] == line.batch


_THREE = ("full", "eqclass", "local")
_FIVE = ("resnet50", "googlenet", "mobilenet_v2", "unet", "vgg16")
_GUESSES: dict[str, Guess] = {
    "simrd_fig2": _chain(lambda n: 2 * sqrt(n)),
    "simrd_fig3": _chain(log2),
    "simrd_fig4": _log((*_THREE, "lru", "largest", "random"), dealloc="eager"),
    "simrd_fig5": _log(("full",), thrash_limit=5.0),
    "simrd_fig6": _log(_THREE, dealloc="eager"),
    "simrd_fig7": _trace("full", 21),
    "simrd_fig8": _trace("lru", 21),
    "simrd_fig9": _trace("full", 7),
    "simrd_fig10": _trace("lru", 7),
    "simrd_fig11": _log(("ablation",), dealloc="eager", cost="estar"),
    "simrd_fig12": _log(("ablation",), dealloc="eager", cost="eqclass"),
    "simrd_fig13": _log(("ablation",), dealloc="eager", cost="local"),
    "simrd_fig14": _log(("ablation",), dealloc="eager", cost="none"),
    "simrd_distance": _each(lambda row: row["extra"].get("banishing_peak_bytes") is not None),
    "checkmate_fig1": _of_checkmate(
        lambda row: row["model"] == "resnet32" and row["strategy"] in ("checkpoint_all", "anytime")
    ),
    "checkmate_fig3": _of_checkmate(_is_architecture),
    "checkmate_fig5": _tradeoff(
        *(("vgg16", 256), ("mobilenet_v1", 512), ("unet", 32)),
        *(("keras_vgg16", 256), ("keras_mobilenet", 512), ("keras_unet", 32)),
    ),
    "checkmate_fig5a": _tradeoff(("vgg16", 256)),
    "checkmate_fig5b": _tradeoff(("mobilenet_v1", 512)),
    "checkmate_fig5c": _tradeoff(("unet", 32)),
    "checkmate_fig6": _each(lambda row: "max_batch" in row["extra"]),
    "checkmate_fig7": _of_checkmate(_is_rounded),
    "checkmate_appendix_a": _each(_is_gap),
    "checkmate_table1": _of_checkmate(lambda row: row["budget_fraction"] == 1.0),
    "checkmate_table2": _of_checkmate(_is_ratio),
    "joins_table1": _each(_is_residual),
    "joins_table2": _each(_is_residual),
    "joins_fig6": _each(_is_toy),
    "joins_fig8": _against_memory,
    "joins_fig9": _against_length,
    "joins_fig10": _each(_is_balanced),
    "monet_fig3": _compared(_CHECKMATES, 2),
    "monet_fig4": _monet(_is_bar),
    "monet_fig5": _monet(_is_case),
    "monet_fig6": _compared(_ABLATION, len(_ABLATION)),
    "monet_fig7": _each(lambda row: row["model"] == printed.CONVOLUTION),
    "monet_fig8": _monet(lambda row: row["model"] == "unet3d" and system(row) == "anytime_joint"),
    "monet_table1": _compared(_CHECKMATES, 2),
    "monet_table2": _solved(("resnet50", "googlenet", "vgg16")),
    "monet_table3": _monet(lambda row: system(row) in ("gist", "anytime_joint")),
    "monet_table5": _solved(_FIVE),
    "monet_table6": _solved(_FIVE),
    "monet_table7": _each(_is_size),
    "feng_huang_table1": _of_activations(
        lambda row: (
            row["model"] in ("unit_chain", "vgg16", "inception_v3")
            and row["strategy"] in ("revolve", "chen_greedy", "feng_huang")
        )
    ),
    "feng_huang_table2": _of_activations(_is_cut),
}
