"""What capture finds, per version of PyTorch, and what it refuses."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rematbench.base.errors import CaptureError, ConfigError
from rematbench.graphs.ir import Phase
from rematbench.graphs.plan import program_order
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload, image_size
from rematbench.validator import measure
from rematbench.zoo import make_model, make_python_model

# Ops, and forward and loss ops among them. PyTorch's capture is private
# API: a new version gets its own line, after a look at what changed.
SNAPSHOTS = {
    "2.13": {
        "vgg16": (100, 41),
        "resnet50": (459, 229),
        "mobilenet_v2": (413, 206),
    },
}
SNAPSHOTS["2.11"] = SNAPSHOTS["2.15"] = SNAPSHOTS["2.13"]


@pytest.mark.parametrize("name", SNAPSHOTS["2.13"])
def test_snapshot(name: str) -> None:
    version = torch.__version__.rpartition(".")[0]
    if version not in SNAPSHOTS:
        pytest.skip(f"no snapshot for torch {version}")
    graph = capture(make_model(name, batch_size=256, resolution=224)).graph
    before = sum(op.phase is not Phase.BACKWARD for op in graph.ops)
    assert (len(graph.ops), before) == SNAPSHOTS[version][name]


def test_bytes_are_those_of_the_model() -> None:
    workload = make_model("vgg11", batch_size=4, resolution=64)
    captured = capture(workload)
    kinds = captured.kinds
    sizes = {value.name: value.bytes for value in captured.graph.values}
    for kind, expected in (
        ("parameter", sum(p.nbytes for p in workload.module.parameters())),
        ("input", 4 * 3 * 64 * 64 * 4 + 4 * 8),
    ):
        assert sum(sizes[name] for name in kinds if kinds[name] == kind) == expected
    gradients = sum(sizes[name] for name in captured.gradient_values)
    assert gradients == sum(p.nbytes for p in workload.module.parameters())
    assert all(op.target and op.name.startswith(op.operator) for op in captured.graph.ops)


def no_loss() -> object:
    return torch.nn.Linear(3, 3), (torch.ones(2, 3),)


def own_loss(width: int = 3) -> object:
    module = torch.nn.Linear(width, 1)
    return module, (torch.ones(2, width),), lambda model, x: model(x).sum()


def odd() -> object:
    return "no model"


def test_python_models() -> None:
    here = "test_capture"
    workload = make_python_model(f"{here}:own_loss", width=5)
    assert [op.phase for op in capture(workload).graph.ops].count(Phase.LOSS) == 1
    with pytest.raises(CaptureError, match="scalar"):
        capture(make_python_model(f"{here}:no_loss"))
    for target, said in (
        (f"{here}:odd", "returned a value of type str"),
        (f"{here}:nix", "has no function 'nix'"),
        ("nix:nix", "there is no module 'nix'"),
        (here, "give package.module:function"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_python_model(target)
    with pytest.raises(ConfigError, match="its options are: width"):
        make_python_model(f"{here}:own_loss", height=5)


def test_the_batch_of_a_python_model_goes_where_it_trains() -> None:
    workload = make_python_model("test_capture:own_loss")
    assert workload.make_batch()[0].device.type == "cpu"
    with torch.device("meta"):
        assert workload.make_batch()[0].is_meta
    with FakeTensorMode(), torch.device("cuda"):
        assert workload.make_batch()[0].device.type == "cuda"


def test_a_package_that_was_imported_through_a_link_is_the_folder_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there" / "linked_network").mkdir(parents=True)
    text = "from test_capture import own_loss\n\n\ndef small():\n    return own_loss(3)\n"
    (tmp_path / "there" / "linked_network" / "__init__.py").write_text(text)
    (tmp_path / "link").symlink_to(tmp_path / "there")
    monkeypatch.syspath_prepend(str(tmp_path / "link"))
    monkeypatch.chdir(tmp_path / "there")
    importlib.import_module("linked_network")
    assert len(capture(make_python_model("linked_network:small")).graph.ops) > 2


def test_names_and_options_of_the_zoo() -> None:
    with pytest.raises(ConfigError, match="did you mean resnet50"):
        make_model("resnet5O")
    with pytest.raises(ConfigError, match="its options are: batch_size, resolution"):
        make_model("unet", colour="red")
    assert image_size(None, "416x608") == (416, 608)
    assert image_size("32", 1) == (32, 32)
    for bad in ("0", "axb", "1x2x3", -4, ""):
        with pytest.raises(ConfigError, match="give pixels"):
            image_size(bad, 1)


def test_views_of_a_copy_without_cost_are_views_of_the_original() -> None:
    """Dropout at 0 becomes a copy in the trace alone; a view of it was once an op with bytes."""

    class Nothing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            kept = F.dropout(self.layer(x), 0.0)
            found: Tensor = self.layer(kept.view(4, 2, 4).flatten(0, 1)) * kept.flatten().sum()
            return found

    batch = (torch.ones(8, 4),)
    captured = capture(Workload("nothing", Nothing(), lambda: batch, lambda m, x: m(x).sum()))
    names = {op.name for op in captured.graph.ops}
    assert not {name for name in names if "view" in name or "clone" in name}
    plan = program_order(captured.graph)
    assert measure(captured, plan, device="cpu", repeats=1).gradient_bitwise
