"""The cheapest plan or the largest batch for a memory, and code that runs."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from rematbench.cli import fit, fit_offload
from rematbench.cli.plugins import register_plugins
from rematbench.cli.resolvers import register_resolvers
from rematbench.conf.published import LIBRARIES
from rematbench.graphs.files import write_plan
from rematbench.graphs.simulate import simulate
from rematbench.jobs.optimizer import NAMES as OPTIMIZERS
from rematbench.jobs.settings import DTYPES, TORCH_KINDS, Settings, settings_from
from rematbench.jobs.sources import load, make_workload
from rematbench.rows.row import COLUMNS, make_row
from rematbench.strategies.base import Problem
from rematbench.strategies.chen import LinearizedSqrt
from rematbench.worker.worker import the_worker
from rematbench.zoo.libraries import AUTOCAST
from rematbench.zoo.vision import import_torchvision

NETWORK = """
import random

import numpy as np
import torch
from torch import nn

def drawn(batch_size=2):
    \"\"\"Its sizes come from all three generators.\"\"\"
    sizes = [int(torch.randint(2, 99, ())), random.randint(2, 99), int(np.random.randint(2, 99)), 1]
    layers = [nn.Linear(4, sizes[0])]
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Tanh(), nn.Linear(before, before), nn.Tanh(), nn.Linear(before, after)]
    return nn.Sequential(*layers), (torch.randn(batch_size, 4),), lambda m, x: m(x).sum()

def deep(batch_size=64):
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(16, 16), nn.Tanh())]
    return nn.Sequential(*layers), (torch.randn(batch_size, 16),), lambda m, x: m(x).sum()

def vast(batch_size=2):
    \"\"\"256 GiB of parameters.\"\"\"
    layers = [nn.Linear(65536, 65536, bias=False) for _ in range(16)]
    return nn.Sequential(*layers), (torch.randn(batch_size, 65536),), lambda m, x: m(x).sum()

def fixed():
    return deep(64)
"""


Call = Callable[..., tuple[int, str, str, Path]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a model that the worker can import."""
    folder = tmp_path_factory.mktemp("fitting")
    (folder / "fitted_network.py").write_text(NETWORK)
    sys.path.insert(0, str(folder))
    the_worker().stop()  # a new one sees the folder
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def call(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Call:
    """Run the command; gives exit code, standard output and error, and the run folder."""
    monkeypatch.chdir(place)  # each time, so that one worker serves them all

    def run(*keys: str) -> tuple[int, str, str, Path]:
        folder = tmp_path / "run"
        given = ["cache=null"]
        if not any(key.startswith("model=") for key in keys):
            given += ["model=python", "model.target=fitted_network:deep", "batch_size=64"]
        given += ["costmodel=flops", "time_limit=5", f"hydra.run.dir={folder}"]
        monkeypatch.setattr(sys, "argv", ["rematbench-fit", *given, *keys])
        code = 0
        try:
            fit.main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        text = capsys.readouterr()
        return code, text.out, text.err, folder

    return run


def check_script(script: Path, place: Path) -> None:
    """It runs in a process of its own, with the imports that it brings, and prints three losses."""
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": f"{Path(fit.__file__).parents[1]}:{place}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3


def losses_of(script: Path) -> list[float]:
    """What it prints, in this process, with no names but its own."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(script), run_name="__main__")
    return [float(word) for word in said.getvalue().split()]


def test_the_cheapest_plan_and_its_code(call: Call, place: Path) -> None:
    keys = ("memory=45kB", "strategy=linearized_sqrt", "strategies=[chen_greedy]")
    code, out, _, folder = call(*keys)
    assert code == 0
    row = json.loads((folder / "row.json").read_text())
    assert set(row) == set(COLUMNS)
    assert row["status"] == "ok"
    tried = row["extra"]["fit"]["tried"]
    assert [t["strategy"] for t in tried] == ["checkpoint_all", "linearized_sqrt", "chen_greedy"]
    assert row["peak_bytes"] <= 45_000 < row["checkpoint_all_peak_bytes"]
    assert row["overhead"] == min(t["overhead"] for t in tried if t["status"] == "ok")
    assert (folder / "train.py").read_text() in out
    check_script(folder / "train.py", place)


SMALL = ("model.options.layers=2", "model.options.width=16", "model.options.heads=2")
SENTENCES = ("model.options.sequence_length=8", "model.options.vocabulary=16", "batch_size=16")
PRINTED = [
    (),
    ("dtype=bfloat16",),
    ("dtype=bfloat16", "optimizer=adamw", "memory=150kB"),
    ("optimizer=momentum", "largest_batch=true", "batch_size=null", "memory=30kB"),
    ("model=transformer_lm", *SMALL, *SENTENCES, "memory=250kB"),
    ("model=transformer_lm", *SMALL, *SENTENCES, "memory=150kB", "dtype=bfloat16"),
    ("model=gpt2", "model.size=small", "memory=1GiB", "dtype=bfloat16"),
    ("memory=1GiB", "dtype=float64"),
]


@pytest.mark.parametrize("keys", PRINTED, ids=" ".join)
def test_what_is_printed_runs(keys: tuple[str, ...], call: Call) -> None:
    pytest.importorskip("transformers", reason="the extra models")
    given = ("memory=45kB", "strategy=linearized_greedy", "strategies=[]")
    code, _, err, folder = call(*given, *keys)
    assert code == 0, err
    row = json.loads((folder / "row.json").read_text())
    assert row["status"] == "ok", row["reason"]
    assert len(losses_of(folder / "train.py")) == 3


ZOO: tuple[str, ...] = (*SMALL, *SENTENCES[:2])
LLAMA = {"sequence_length": 8, "hidden_size": 16, "intermediate_size": 16, "vocab_size": 16}
LLAMA |= {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
VIT = {"depth": 2, "embed_dim": 16, "num_heads": 2, "img_size": 16, "num_classes": 4}
UNET = {"sample_size": 8, "block_out_channels": [8], "layers_per_block": 1}
UNET |= {"norm_num_groups": 4, "add_attention": False}
UNET |= {"down_block_types": ["AttnDownBlock2D"], "up_block_types": ["AttnUpBlock2D"]}


def options(given: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"+model.options.{key}={json.dumps(value)}" for key, value in given.items())


KINDS: dict[str, tuple[str, ...]] = {
    "zoo": ("model=transformer_lm", *ZOO),
    "python": ("model=python", "model.target=fitted_network:drawn"),
    "transformers": ("model=transformers", "model.config=LlamaConfig", *options(LLAMA)),
    "diffusers": ("model=diffusers", "model.config=UNet2DModel", *options(UNET)),
    "timm": ("model=timm", "model.arch=vit_tiny_patch16_224", "resolution=16", *options(VIT)),
}
"""Per kind of model, a small one."""
OPTIONS = (
    (),
    *((f"+model.options.autocast={name}",) for name in AUTOCAST),
    ("+model.options.lora=2",),
)
"""What a library's model may have beside its own options."""
DTYPES_GIVEN = (None, *DTYPES)
MASTER = (None, True, False)


def printed_for(kind: str) -> list[tuple[str, ...]]:
    """Keys of fits: every dtype, in turn with every optimizer, option and kind of weights."""
    place = list(KINDS).index(kind)
    found = []
    for number, dtype in enumerate(DTYPES_GIVEN):
        optimizer = OPTIMIZERS[(number + place) % len(OPTIMIZERS)]
        master = MASTER[(number + place) % len(MASTER)] if optimizer != "none" else None
        keys = [*KINDS[kind], "batch_size=2", f"optimizer={optimizer}"]
        keys += OPTIONS[(number + place) % len(OPTIONS)] if kind in LIBRARIES else ()
        keys += [] if dtype is None else [f"dtype={dtype}"]
        keys += [] if master is None else [f"master_weights={str(master).lower()}"]
        found.append(tuple(keys))
    return found


def test_every_value_that_fit_accepts_is_printed_with_every_kind_of_model() -> None:
    assert set(KINDS) == set(TORCH_KINDS)
    assert set(fit._OPTIMIZERS) == set(OPTIMIZERS)
    every = [keys for kind in KINDS for keys in printed_for(kind)]
    for kind in KINDS:
        mine = {key for keys in printed_for(kind) for key in keys}
        assert {f"optimizer={name}" for name in OPTIMIZERS} <= mine
        assert {f"dtype={name}" for name in DTYPES} <= mine
        assert kind not in LIBRARIES or {key for option in OPTIONS for key in option} <= mine
    pairs = {(k, d) for keys in every for k in keys for d in keys if d.startswith("dtype=")}
    for dtype in DTYPES:
        for optimizer in OPTIMIZERS:
            assert (f"optimizer={optimizer}", f"dtype={dtype}") in pairs


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_printed_runs_with_every_value_that_fit_accepts(
    kind: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: what fit does but for its planners, and then what it printed."""
    if kind in LIBRARIES:
        import_torchvision()
        pytest.importorskip(kind, reason="the extra models")
    monkeypatch.chdir(tmp_path)
    register_resolvers()
    register_plugins()
    with initialize_config_module("rematbench.conf", version_base="1.3"):
        cases = {keys: composed(*keys) for keys in printed_for(kind)}
    for keys, (config, settings) in cases.items():
        if settings.optimizer == "adamw8bit" and find_spec("bitsandbytes") is None:
            continue
        if not trains(settings):
            continue
        # Seeded as when the plan was made: the model is the one that it is of.
        found = losses_of(printed(config, settings, tmp_path))
        assert len(found) == 3, keys
        assert math.isfinite(found[0]), keys  # with float16 AdamW's step is soon none


def trains(settings: Settings) -> bool:
    """Has PyTorch all that the step needs on this CPU, in these types?"""
    workload = make_workload({**settings.model, "batch_size": 2}, settings.seed)
    try:
        workload(*workload.make_batch()).backward()
    except RuntimeError as error:
        return not any(
            words in str(error) for words in ("mixed dtype (CPU)", "not implemented for")
        )
    return True


def composed(*keys: str) -> tuple[dict[str, Any], Settings]:
    """The command's configuration, and the settings of its job."""
    given = ("memory=1GiB", "strategy=linearized_sqrt", "costmodel=flops", "seed=5", *keys)
    made = compose("fit", list(given), return_hydra_config=True)
    OmegaConf.set_struct(made, False)
    del made["hydra"]
    plain: Any = OmegaConf.to_container(made, resolve=True, throw_on_missing=True)
    return plain, settings_from(plain, "linearized_sqrt")


def printed(config: dict[str, Any], settings: Settings, folder: Path) -> Path:
    """The code that fit prints, for a plan that recomputes."""
    task = load(settings)
    graph = task.graph
    solution = LinearizedSqrt().plan(Problem(graph, None))
    assert solution.plan is not None
    trace = simulate(graph, solution.plan)
    assert trace.recomputations
    write_plan(folder / "plan.json", solution.plan)
    row = make_row(
        strategy="linearized_sqrt", batch_size=2, overhead=0.1, peak_bytes=trace.peak_bytes,
        costmodel="flops", extra={"memory": {"optimizer": task.held_bytes}},
    )  # fmt: skip
    script = folder / "train.py"
    asked = fit.request_from(config, settings)
    script.write_text(fit.code(asked, settings, row, folder / "plan.json"))
    return script


def test_what_offloading_would_bring(call: Call) -> None:
    """For a machine that is not here; the code that is printed copies on the one that is."""
    asked = ("strategy=linearized_sqrt", "strategies=[offload_all]", "time_limit=2")
    keys = ("costmodel=roofline", "link=1000GB/s", "link.latency=0", "host=1MiB", "memory=45kB")
    code, out, err, folder = call(*asked, *keys)
    assert code == 0, err
    row = json.loads((folder / "row.json").read_text())
    facts = row["extra"]["fit"]
    assert [t["strategy"] for t in facts["tried"]][1:] == [
        "linearized_sqrt",
        "offload_all",
        "hybrid",
    ]
    rules, ours = facts["offloading"]
    assert ours["status"] == "ok"
    assert ours["without"]["strategy"] == "linearized_sqrt"
    assert ours["overhead"] <= ours["without"]["overhead"]
    for each in (rules, ours):
        assert f"{each['strategy']}, offloading: " in out
        assert f"without: overhead {each['without']['overhead']:+.1%} (linearized_sqrt)" in out
    assert row["strategy"] == "hybrid"
    assert 0 < ours["host_peak_bytes"] == row["extra"]["host_peak_bytes"] <= ours["offloaded_bytes"]
    assert ", host=1048576)" in out
    losses = io.StringIO()
    with contextlib.redirect_stdout(losses):
        runpy.run_path(str(folder / "train.py"), run_name="__main__")
    assert len(losses.getvalue().split()) == 3


@pytest.mark.parametrize("moved", [0, 2**20])
def test_a_plan_that_moves_nothing_is_one_without_a_host(moved: int) -> None:
    """Whatever the strategy that made it could have done."""
    asked = fit.FitRequest(2**20, 0, ("checkpoint_all", "hybrid"), False, 1)
    copies = {"offloaded_bytes": moved, "host_peak_bytes": moved}
    rows = [
        make_row(strategy="checkpoint_all", status="infeasible"),
        make_row(strategy="hybrid", status="ok", overhead=0.1, peak_bytes=9, extra=copies),
    ]
    found = fit_offload.brought(rows, fit._best_without(asked, rows))
    (line,) = fit_offload.said(found, False)
    if moved:
        assert line.endswith(
            "+10.0% (1.00 MiB to the host, 1.00 MiB of them at once); without: no plan fits"
        )
    else:
        assert line.endswith("+10.0% (nothing to the host); without: overhead +10.0% (hybrid)")


def test_a_link_where_ordinary_training_is_enough(call: Call) -> None:
    code, out, err, _ = call("memory=1GiB", "link=pcie4", "costmodel=roofline")
    assert code == 0, err
    assert "Ordinary training fits: nothing has to go to the host." in out


def test_ordinary_training_is_enough(call: Call) -> None:
    _, out, _, folder = call("memory=1GiB", "reserve=1MiB")
    row = json.loads((folder / "row.json").read_text())
    assert row["strategy"] == "checkpoint_all"
    assert row["extra"]["fit"]["reserve_bytes"] == 2**20
    assert "ordinary training fits" in out


def test_the_largest_batch(call: Call) -> None:
    keys = ("memory=30kB", "strategy=linearized_greedy", "strategies=[]", "largest_batch=true")
    _, out, _, folder = call(*keys, "batch_size=null")
    row = json.loads((folder / "row.json").read_text())
    plain, best = row["extra"]["fit"]["tried"]
    assert row["batch_size"] == best["batch_size"] > plain["batch_size"]
    assert row["extra"]["accounting"] == "full"
    assert f"batch {row['batch_size']}" in out


def test_a_model_s_own_batch_size_is_none_that_was_given() -> None:
    register_resolvers()
    register_plugins()
    with initialize_config_module("rematbench.conf", version_base="1.3"):
        config, settings = composed("model=vgg16", "largest_batch=true")
    assert settings.model["batch_size"] is not None
    assert fit.request_from(config, settings).largest_batch


@pytest.mark.parametrize("largest", ["false", "true"])
def test_parameters_take_no_memory_where_nothing_runs(largest: str, call: Call) -> None:
    """Neither here, nor in the search of the largest batch, which rematbench-max-batch is."""
    keys = ("model=python", "model.target=fitted_network:vast", f"largest_batch={largest}")
    batch = "batch_size=null" if largest == "true" else "batch_size=2"
    code, _, err, folder = call(*keys, batch, "memory=513GiB", "reserve=0", "strategies=[]")
    assert code == 0, err
    row = json.loads((folder / "row.json").read_text())
    assert row["status"] == "ok"
    assert row["peak_bytes"] > 2**39  # parameters, and their gradients
    assert row["batch_size"] == 2 if largest == "false" else row["batch_size"] > 100
    worker = the_worker()._process
    assert worker is not None
    for process in ("self", worker.pid):  # addresses ever reserved, written to or not
        status = Path(f"/proc/{process}/status").read_text()
        (reserved,) = re.findall(r"^VmPeak:\s+(\d+) kB$", status, re.MULTILINE)
        assert 1024 * int(reserved) < 2**37


def test_a_model_without_a_batch_size_prints_none(call: Call) -> None:
    _, out, _, folder = call("model=python", "model.target=fitted_network:fixed", "memory=1GiB")
    first = (folder / "train.py").read_text().splitlines()[0]
    assert first in out
    assert first.endswith("overhead +0.0%")
    for said in (out, (folder / "train.py").read_text()):
        assert not re.search(r"batch(_size)?[ =:]+(None|null)", said)


def test_nothing_fits(call: Call) -> None:
    code, out, _, folder = call("memory=2", "strategy=linearized_sqrt", "strategies=[]")
    row = json.loads((folder / "row.json").read_text())
    assert (code, row["status"]) == (0, "infeasible")
    assert not (folder / "train.py").exists()
    assert "apply(" not in out


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("memory=lots", "give bytes such as"),
        ("reserve=9GiB", "leaves nothing of memory=8GiB"),
        ("budget=0.5", "budget=0.5: give memory"),
        ("strategies=[magic]", "strategies: magic: unknown; it may be one of"),
        ("strategies=magic", "strategies=magic: give a list"),
        ("host=1GiB", "host=1073741824: there is no link to it; give link=pcie4"),
        ("largest_batch=7", "largest_batch=7: give true or false"),
        ("largest_batch=true", "batch_size=64: the search of largest_batch=true decides it; give"),
        ("accounting=activations", "accounting=activations: a training step holds all that"),
        ("accounting=checkmate", "accounting=checkmate: a training step holds all that there is"),
    ],
)
def test_mistakes(key: str, message: str, call: Call) -> None:
    code, out, error, _ = call(key)
    assert (code, out) == (2, "")
    assert message in error


@pytest.mark.gpu
def test_on_a_device(call: Call, place: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    code, said, error, folder = call("memory=1GiB", "device=cuda", "costmodel=profiled")
    assert code == 0, said + error
    row = json.loads((folder / "row.json").read_text())
    assert row["status"] == "ok"
    assert row["gradient_bitwise"]
    assert row["measured_peak_bytes"] <= 2**30
    check_script(folder / "train.py", place)
