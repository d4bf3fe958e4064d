"""What the library's graphs are made of: command lines of jobs, by family.

A graph is what ``rematbench`` plans on when it is given these words. The families here are fixed;
those of other people's libraries are drawn (:mod:`rematbench.instances.drawing`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

H100 = ("costmodel=roofline", "costmodel.preset=h100")
_SHORT = {"batch_size": "b", "resolution": "", "costmodel.preset": ""}


@dataclass(frozen=True)
class Candidate:
    """What one graph is made of.

    Attributes:
        family: the folder below ``instances/``.
        name: unique in the library.
        words: of a job's command line, but for strategy and budget.
        fractions: of the peak, budgets that it is to have besides those of the rule.
    """

    family: str
    name: str
    words: tuple[str, ...]
    fractions: tuple[float, ...] = ()

    @property
    def graph(self) -> str:
        """The path below ``instances/``."""
        return f"{self.family}/{self.name}.graph.json.gz"


def fixed() -> list[Candidate]:
    """The families that are not drawn, in order."""
    makers = (networks, papers, chains, joins, layered, logs, forward)
    return [source for maker in makers for source in maker()]


def networks() -> Iterator[Candidate]:
    """The leaderboard's 46, with its budgets (``conf/experiment/leaderboard.yaml``)."""
    import yaml

    place = files("rematbench.conf") / "experiment" / "leaderboard.yaml"
    document = yaml.safe_load(place.read_text(encoding="utf-8"))
    preset = {"costmodel.preset": document["costmodel"]["preset"]}
    for given in document["problems"]:
        own = {**preset, **given}
        budgets = own.pop("budget")
        for other in ("floor", "quick"):
            own.pop(other, None)
        name = "_".join([own["model"], *_marks(own)])
        words = ("costmodel=roofline", *(f"{key}={value}" for key, value in own.items()))
        yield Candidate("networks", name, words, tuple(budgets))


def _marks(own: Mapping[str, Any]) -> Iterator[str]:
    for key, short in _SHORT.items():
        if key in own and own[key] != "h100":
            yield f"{short}{own[key]}"


# Checkmate's networks at the batches of its figure 5 and table 2, counted as there; and at others,
# with all that is in memory, in an H100's time.
_KERAS = {"vgg16": 256, "vgg19": 256, "mobilenet": 512, "resnet50": 256}
_KERAS |= {"unet": 32, "fcn8": 16, "segnet": 16}


def papers() -> Iterator[Candidate]:
    """Networks layer by layer, as Keras has them and the papers' programs read them."""
    for network, batch in _KERAS.items():
        model = f"model=keras_{network}"
        words = (model, f"batch_size={batch}", "costmodel=flops", "accounting=checkmate")
        yield Candidate("papers", f"keras_{network}_b{batch}_flop", words)
        small = batch // 4
        words = (model, f"batch_size={small}", *H100)
        yield Candidate("papers", f"keras_{network}_b{small}_h100", words)
        wide = (model, "batch_size=8", "resolution=512x768", *H100)
        yield Candidate("papers", f"keras_{network}_b8_512x768_h100", wide)


def chains() -> Iterator[Candidate]:
    """Chains of unit steps, and of random costs and sizes, from 8 ops on."""
    for length in (4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 12500, 24999):
        words = ("model=unit_chain", f"model.length={length}", "costmodel=given")
        yield Candidate("chains", f"unit_chain{length}", words)
    for seed, length in enumerate((10, 20, 40, 80, 160, 320, 640, 15, 30, 60, 120, 1500)):
        yield Candidate("chains", f"uneven_chain{length}", _built("uneven_chain", length, seed))


def _built(function: str, *given: int) -> tuple[str, ...]:
    return (f"build={function}", *map(str, given))


_BRANCHES = (
    *((2, 3), (4, 5), (3, 6, 7), (4, 10, 12), (8, 8, 8), (2, 3, 5, 8), (5,) * 5, (16, 32)),
    *((20, 30, 40), (10,) * 10, (1, 2, 4, 8, 16, 32), (64, 128), (50, 60, 70, 80), (25,) * 16),
    *((300, 500), (7,) * 100, tuple(range(1, 41)), (1000, 1500, 2000)),
)


def joins() -> Iterator[Candidate]:
    """Branches that meet in the Turn (Beaumont et al.), whose steps may overwrite."""
    for branches in _BRANCHES:
        least, most = min(branches), max(branches)
        name = f"join{len(branches)}x{least}" if least == most else f"join{len(branches)}_{most}"
        words = ("model=join", f"model.lengths={[*branches]}", "costmodel=given")
        yield Candidate("joins", name.replace(" ", ""), words)


# length, width, density, skips
_LAYERED = (
    *((10, 0.36, 0.2, 0.14), (20, 0.36, 0.2, 0.14), (40, 0.36, 0.2, 0.14), (60, 0.1, 0.3, 0.1)),
    *((80, 1.0, 0.1, 0.3), (100, 0.36, 0.2, 0.14), (100, 0.05, 0.5, 0.0), (150, 0.36, 0.1, 0.4)),
    *((250, 0.36, 0.2, 0.14), (250, 0.02, 0.5, 0.3), (500, 0.36, 0.2, 0.14), (500, 0.1, 0.1, 0.5)),
    *((1000, 0.36, 0.2, 0.14), (1000, 0.05, 0.05, 0.1), (2500, 0.05, 0.1, 0.1)),
    *((5000, 0.01, 0.1, 0.2), (30, 0.5, 0.4, 0.0), (50, 0.2, 0.1, 0.6), (70, 2.0, 0.05, 0.2)),
    *((120, 0.02, 0.9, 0.05), (200, 0.36, 0.05, 0.14), (300, 0.1, 0.4, 0.2), (400, 1.0, 0.02, 0.4)),
    *((750, 0.01, 0.3, 0.5), (1500, 0.02, 0.1, 0.3)),
)


def layered() -> Iterator[Candidate]:
    """Random layered graphs (Gagrani et al., as Moccasin has them) with a loss and gradients."""
    for seed, shape in enumerate(_LAYERED):
        yield _layered("layered", "layered", shape, seed, backward=True)


def _layered(
    family: str, name: str, shape: tuple[int, float, float, float], seed: int, *, backward: bool
) -> Candidate:
    length, width, density, skips = shape
    words = (
        *("model=random_layered", f"model.length={length}", f"model.width={width}"),
        *(f"model.density={density}", f"model.skips={skips}", f"model.seed={seed}"),
        *(f"model.backward={str(backward).lower()}", "costmodel=given"),
    )
    return Candidate(family, f"{name}{length}_s{seed}", words)


def logs() -> Iterator[Candidate]:
    """Operator logs that ``rematbench-record`` made, as graphs, and DTR's toy chains."""
    for name in ("lstm_lm", "transformer_lm", "tree_lstm", "unet"):
        words = ("model=simrd_log", f"model.path=tests/data/{name}.log", "costmodel=given")
        yield Candidate("logs", f"log_{name}", words)
    for length in (16, 64, 256, 1024):
        words = ("model=toy_chain", f"model.length={length}", "costmodel=given")
        yield Candidate("logs", f"toy_chain{length}", words)


def forward() -> Iterator[Candidate]:
    """Graphs without a backward pass: Moccasin's kind, and networks that only infer."""
    again = ((250, 0.36, 0.2, 0.14), (1000, 0.36, 0.2, 0.14), (8, 0.36, 0.2, 0))
    shapes = [*_LAYERED[:13], *again, *_LAYERED[16:]]
    for seed, shape in enumerate(shapes):
        yield _layered("forward", "moccasin", shape, seed + 100, backward=False)
    for network in ("unet", "fcn8", "segnet", "resnet50", "mobilenet"):
        words = (f"model=keras_{network}", "batch_size=8", "model.backward=false", *H100)
        yield Candidate("forward", f"keras_{network}_forward", words)
    for seed, length in enumerate((30, 100, 300, 1000)):
        yield Candidate("forward", f"random{length}_forward", _built("only_forward", length, seed))
