"""Every alternative implementation against autograd's, alone and in plans drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench import costmodel, validator
from rematbench.base.errors import CaptureError, ExecutionError, GraphError, InvalidPlan
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value
from rematbench.graphs.plan import Compute, Free, Plan, program_order, with_frees
from rematbench.graphs.simulate import simulate
from rematbench.tracing.alternatives import Kind, kinds_of, with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.validator.execute import RandomReplay
from rematbench.validator.interpret import run_call
from rematbench.validator.timing import Timing


def workload(module: nn.Module, *shape: int, seed: int = 0) -> Workload:
    """The loss has a gradient that no normalisation cancels."""
    return Workload("small", module, lambda: (torch.randn(shape),), lambda m, x: m(x).sin().sum())


def random_parameters(module: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(0.2, 1.0).mul_(torch.randint(2, parameter.shape) * 2 - 1)
    return module


Tensors = dict[str, Tensor]


class Replica:
    """Runs the captured step by default implementations, then each op's others beside it."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.bench = validator.Validator(captured, "cpu", 0).bench
        self.tensors: Tensors = {
            r.tensor: t for r, t in zip(captured.residents, self.bench.residents, strict=True)
        }
        self.rng = RandomReplay("cpu")

    def errors(self) -> Iterator[tuple[str, str, float, float]]:
        """(op, implementation, error, tolerance) of all implementations but the defaults."""
        torch.manual_seed(5)
        graph = self.captured.graph
        with torch.no_grad():
            for call in self.captured.prologue:
                self.tensors |= run_call(call, self.tensors)
            for number, op in enumerate(graph.ops):
                self.rng.record(number)
                code = self.captured.code[op.name]
                before = dict(self.tensors)
                for call in code["default"]:
                    self.tensors |= run_call(call, self.tensors)
                for implementation in op.implementations[1:]:
                    yield op.name, implementation.name, *self._error(op, implementation, before)

    def _error(
        self, op: Op, implementation: Implementation, before: Tensors
    ) -> tuple[float, float]:
        value_of = self.captured.value_of
        given = before if not {*implementation.reads} & {*op.writes} else self.tensors
        given = {
            name: tensor.clone() if value_of[name] in implementation.overwrites else tensor
            for name, tensor in given.items()
            if value_of[name] in implementation.reads
        }
        traits = self.captured.traits[op.name, implementation.name]
        if traits.replays is not None:
            self.rng.replay(self.captured.graph.op_index[traits.replays])
        calls = self.captured.code[op.name][implementation.name]
        made: Tensors = {}
        for call in calls:
            made |= run_call(call, given | made)
        if traits.replays is not None:
            self.rng.resume()
        least = 0.0
        if calls[0].outs[0] is None:
            # A bias before a batch norm has gradient 0 but for rounding: look at the weight's.
            least = max(self.tensors[name].abs().max().item() for name in made)
        errors = (error(made[name], self.tensors[name], least) for name in made)
        return max(errors), traits.tolerance


def error(found: Tensor, expected: Tensor, least: float = 0.0) -> float:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    assert strides(found) == strides(expected)
    if torch.equal(found, expected):
        return 0.0
    largest = max(expected.double().abs().max().item(), least)
    return (found.double() - expected.double()).abs().max().item() / max(largest, 1e-30)


def strides(tensor: Tensor) -> list[int]:
    if not tensor.numel():
        return []
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def check(captured: Captured, **options: Any) -> dict[str, set[str]]:
    """All implementations within their tolerances; returns their names, by ATen target."""
    attached = with_alternatives(captured, **options)
    names: dict[str, set[str]] = {}
    for op, implementation, found, tolerance in Replica(attached).errors():
        assert found <= tolerance, f"{op}, {implementation}: {found} > {tolerance}"
        target = captured.code[op]["default"][0].target.overloadpacket.__name__
        names.setdefault(target, set()).add(implementation)
    return names


ODD = (3, 5, 7, 9)  # 945 entries: no multiple of 8


@pytest.mark.parametrize(
    ("make", "target", "expected"),
    [
        (nn.ReLU, "threshold_backward", {"input", "intermediate:bits"}),
        (nn.ReLU6, "hardtanh_backward", {"output", "intermediate:bits"}),
        (nn.Hardtanh, "hardtanh_backward", {"output", "intermediate:bits"}),
        (nn.LeakyReLU, "leaky_relu_backward", {"output", "intermediate:bits"}),
        (lambda: nn.LeakyReLU(-0.5), "leaky_relu_backward", {"intermediate:bits"}),
        (nn.SiLU, "silu_backward", {"output:side_bits"}),
        (nn.GELU, "gelu_backward", {"output:side_bits"}),
        (lambda: nn.GELU("tanh"), "gelu_backward", {"output:side_bits"}),
        (lambda: nn.Dropout(0.3), "native_dropout_backward", {"intermediate:bits", "replay"}),
        (
            lambda: nn.MaxPool2d(3, 2, 1),
            "max_pool2d_with_indices_backward",
            {"shape", "intermediate:offsets8", "intermediate:offsets4"},
        ),
        (
            lambda: nn.MaxPool2d((2, 3), (1, 2), 1, 2, ceil_mode=True),
            "max_pool2d_with_indices_backward",
            {"shape", "intermediate:offsets8", "intermediate:offsets4"},
        ),
        (
            lambda: nn.MaxPool2d(5, 1),
            "max_pool2d_with_indices_backward",
            {"shape", "intermediate:offsets8"},
        ),
        (lambda: nn.AvgPool2d(3, 2, 1), "avg_pool2d_backward", {"shape"}),
    ],
)
@pytest.mark.parametrize("shape", [ODD, (4, 8, 8, 8), (1, 1, 6, 6)])
def test_pointwise_and_pools(
    make: Callable[[], nn.Module], target: str, expected: set[str], shape: tuple[int, ...]
) -> None:
    module = random_parameters(nn.Sequential(nn.Conv2d(shape[1], shape[1], 1), make()))
    names = check(capture(workload(module, *shape)))
    assert names.get(target, set()) - {"lossy:fp16"} == expected


def test_special_numbers_go_the_same_way() -> None:
    from rematbench.tracing.alternatives import bits

    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, 6.0, -1e-45, 2])
    grad = torch.arange(1.0, 10) * torch.tensor([1, 1, float("inf"), float("nan"), 1, 1, 1, 1, 1])
    aten = torch.ops.aten
    expected = aten.threshold_backward(grad, x.relu(), 0)
    found = bits.masked_backward(grad, bits.pack_above(x.relu(), 0))
    assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))
    expected = aten.hardtanh_backward(grad, x, 0, 6)
    found = bits.masked_backward(grad, bits.pack_inside(x.clamp(0, 6), 0, 6))
    assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("kind", ["silu", "none", "tanh"])
def test_smooth_activations_over_their_whole_range(kind: str) -> None:
    from rematbench.tracing.alternatives import bits, smooth
    from rematbench.tracing.alternatives.pointwise_rules import SMOOTH_TOLERANCE

    x = torch.cat([torch.linspace(-30, 30, 60_001), torch.randn(50_000), torch.tensor([1e4, -1e4])])
    y = smooth._forward(kind, x)
    side = bits.pack_below(x, smooth.minimum(kind))
    found = smooth.backward_from_output(torch.ones_like(x), y, side, kind)
    assert error(found, smooth._derivative(kind, x)) < SMOOTH_TOLERANCE
    x = x.double()
    y = smooth._forward(kind, x)
    side = bits.pack_below(x, smooth.minimum(kind))
    found = smooth.backward_from_output(torch.ones_like(x), y, side, kind)
    assert error(found, smooth._derivative(kind, x)) < 1e-9


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.BatchNorm2d(5), ODD),
        (lambda: nn.BatchNorm2d(8, affine=False), (4, 8, 8, 8)),
        (lambda: nn.BatchNorm1d(7), (6, 7)),
    ],
)
def test_batch_norm(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    first = nn.Conv2d(shape[1], shape[1], 1) if len(shape) == 4 else nn.Linear(shape[1], shape[1])
    names = check(capture(workload(random_parameters(nn.Sequential(first, make())), *shape)))
    forward = {"inplace", "statistics", "statistics+inplace"}
    assert names["_native_batch_norm_legit_functional"] == forward
    assert "output" in names["native_batch_norm_backward"]


def test_layer_norm() -> None:
    module = random_parameters(nn.Sequential(nn.Linear(37, 37), nn.LayerNorm(37)))
    names = check(capture(workload(module, 5, 11, 37)))
    assert "output" in names["native_layer_norm_backward"]


@pytest.mark.parametrize("make", [lambda: nn.BatchNorm2d(3), lambda: nn.LayerNorm([3, 4, 4])])
def test_small_weights_are_refused(make: Callable[[], nn.Module]) -> None:
    norm = make()
    nn.init.zeros_(norm.weight)
    captured = capture(workload(nn.Sequential(nn.Conv2d(3, 3, 1), norm), 2, 3, 4, 4))
    attached = with_alternatives(captured)
    refused = [r for r in attached.refused if r.implementation == "output"]
    assert len(refused) == 1
    assert "smallest |weight| is 0" in refused[0].reason
    check(captured)


CONVOLUTIONS = [
    ({"kernel_size": 3, "padding": 1}, {"conv:fft", "conv:winograd", "conv:im2col"}),
    ({"kernel_size": 3, "padding": 1, "stride": 2}, {"conv:fft", "conv:im2col_image"}),
    ({"kernel_size": (3, 5), "padding": (0, 2), "bias": False}, {"conv:fft", "conv:chunk2"}),
    ({"kernel_size": 3, "padding": 2, "dilation": 2}, {"conv:im2col"}),
    ({"kernel_size": 1}, {"conv:channels_last", "conv:chunk2"}),
    ({"kernel_size": 3, "padding": 1, "groups": 5}, {"conv:channels_last", "conv:chunk2"}),
]


@pytest.mark.parametrize(("options", "some"), CONVOLUTIONS)
def test_convolutions(options: dict[str, Any], some: set[str]) -> None:
    torch.manual_seed(3)
    # A large layer beside it, so that no workspace exceeds the whole step's peak.
    module = nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 10, **options))
    wide = workload(module, 5, 3, 13, 11)
    captured = capture(
        replace(
            wide, loss=lambda m, x: (m(x) ** 2).sum() + m[0].weight.new_ones(10**6).mul(2).sum()
        )
    )
    names = check(captured)
    assert some <= names["convolution"]
    assert {"shape", "conv:channels_last", "conv:chunk2"} <= names["convolution_backward"]


class Joined(nn.Module):
    """A skip connection over ten ops, joined by a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.body = nn.ModuleList(nn.Conv2d(4, 4, 1) for _ in range(4))
        self.widen = nn.Conv2d(4, 6, 1)
        self.last = nn.Conv2d(10, 5, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        skip = x = F.relu(self.first(x))
        for layer in self.body:
            x = F.relu(layer(x))
        return self.last(torch.cat([skip, self.widen(x)], 1))


def test_concatenations() -> None:
    """Convolutions by parts, and a copy of the gradient's part that waits."""
    torch.manual_seed(2)
    captured = capture(workload(Joined(), 3, 3, 12, 10))
    names = check(captured)
    assert {"parts", "parts:winograd_image"} <= names["convolution"]
    assert "parts" in names["convolution_backward"]
    assert {"parts:copy", "parts:copy+inplace"} <= names["add"]
    graph = with_alternatives(captured).graph
    (copy,) = (op for op in graph.ops if op.name.endswith("_part"))
    size = {value.name: value.bytes for value in graph.values}
    assert copy.phase is Phase.BACKWARD
    assert 10 * size[copy.name] == 4 * size[copy.reads[0]]


def test_chunks_count_their_traffic() -> None:
    """The roofline charges for each time that a workspace is filled."""
    narrow, wide = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 96, 1)
    captured = with_alternatives(capture(workload(nn.Sequential(narrow, wide), 11, 8, 16, 16)))
    passes = {
        implementation: traits.passes
        for (op, implementation), traits in captured.traits.items()
        if op == "convolution"
    }
    assert passes["conv:im2col"] == passes["conv:winograd"] == 1
    assert passes["conv:im2col_image"] == passes["conv:winograd_image"] == 11
    assert passes["conv:chunk8"] == 6  # of two images
    graph = costmodel.apply("roofline", captured.graph, captured)
    (op,) = (op for op in graph.ops if op.name == "convolution")
    implementations = {implementation.name: implementation for implementation in op.implementations}
    assert implementations["conv:im2col_image"].cost == pytest.approx(
        implementations["conv:im2col"].cost
    )
    assert (
        implementations["conv:winograd_image"].workspace_bytes * 9
        < implementations["conv:winograd"].workspace_bytes
    )
    assert implementations["conv:winograd_image"].cost >= implementations["conv:winograd"].cost


def test_transposed_convolution() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 6, 3, 2, 1, 1))
    assert "shape" in check(capture(workload(module, 2, 3, 9, 9)))["convolution_backward"]


def test_empty_tensors() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.GELU(), nn.Dropout(), nn.LeakyReLU()
    )
    names = check(capture(workload(module, 0, 3, 9, 9)))
    assert "intermediate:bits" in names["threshold_backward"]


class Residual(nn.Module):
    """Every rule has a say: residual sum, pools, dropout, norms, smooth activations."""

    def __init__(self, width: int = 13) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.body = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.tail = nn.BatchNorm2d(width)
        self.down = nn.Conv2d(width, 17, 3, stride=2)
        self.layer = nn.LayerNorm(17)
        self.head = nn.Linear(17, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stem(x)))
        x = F.relu(x + self.tail(self.body(x)))
        x = F.dropout(F.max_pool2d(x, 3, 2, 1), 0.2)
        x = F.silu(F.leaky_relu(F.relu6(self.down(x)), 0.1))
        x = F.gelu(F.avg_pool2d(x, 2))
        return self.head(self.layer(x.mean((2, 3))))


@pytest.fixture(scope="module")
def plain() -> Captured:
    torch.manual_seed(0)
    module = Residual()
    return capture(
        Workload(
            "residual",
            module,
            lambda: (torch.randn(6, 3, 41, 41), torch.randint(5, (6,))),
            lambda m, x, y: F.cross_entropy(m(x), y),
        )
    )


@pytest.fixture(scope="module")
def attached(plain: Captured) -> Captured:
    found = with_alternatives(plain, density=validator.densities(plain, "cpu"))
    return replace(found, graph=costmodel.apply("profiled", found.graph, found))


def test_every_kind_is_within_its_tolerance(plain: Captured) -> None:
    names = check(plain, density=validator.densities(plain, "cpu"))
    kinds = {
        kind
        for implementations in names.values()
        for implementation in implementations
        for kind in kinds_of(implementation)
    }
    assert kinds == {*Kind} - {Kind.DEFAULT, Kind.PARTS}  # there is no concatenation


def test_checkpoint_all_is_as_before(plain: Captured, attached: Captured) -> None:
    before = costmodel.apply("flops", plain.graph, plain)
    after = costmodel.apply("flops", attached.graph, attached)
    one, two = program_order(before), program_order(after)
    assert one.statements == two.statements
    ours, theirs = simulate(after, two), simulate(before, one)
    assert (ours.peak_bytes, ours.cost) == (theirs.peak_bytes, theirs.cost)
    measured = validator.measure(attached, program_order(attached.graph), device="cpu", repeats=1)
    assert (measured.verdict, measured.gradient_bitwise) == ("exact", True)


def random_plan(graph: Graph, seed: int, kinds: frozenset[Kind], again: float) -> Plan:
    """Implementations at random; some forward ops a second time before the backward pass.

    In-place choices that would take away what is still needed are taken back.
    """
    draw = np.random.default_rng(seed)
    order = [op for op in graph.ops if op.phase is Phase.FORWARD]
    rest = [op for op in graph.ops if op.phase is not Phase.FORWARD]
    repeated = [op for op in order if draw.random() < again]
    implementations: list[tuple[Op, int]] = []
    seen: set[str] = set()
    for op in (*order, *rest[:1], *repeated, *rest[1:]):
        allowed = [0] + [
            i
            for i, implementation in enumerate(op.implementations)
            if i
            and kinds_of(implementation.name) <= kinds
            and (op.name in seen or not {*implementation.reads} & {*op.writes})
        ]
        implementations.append((op, int(draw.choice(allowed))))
        seen.add(op.name)
    return _repaired(graph, implementations)


def _repaired(graph: Graph, implementations: list[tuple[Op, int]]) -> Plan:
    """Drop optional ops that nobody reads, then in-place choices that the simulator refuses."""
    needed: set[str] = set(graph.outputs)
    kept: list[tuple[Op, int]] = []
    for op, implementation in reversed(implementations):
        if needed & {*op.writes}:
            kept.append((op, implementation))
            needed |= {*op.implementations[implementation].reads}
    kept.reverse()
    first = {op.name: int(graph.tables.op_first[i]) for i, op in enumerate(graph.ops)}
    for _ in range(len(kept)):
        codes = with_frees(graph, [first[op.name] + implementation for op, implementation in kept])
        plan = Plan.from_codes(graph, codes, "random")
        try:
            simulate(graph, plan)
            return plan
        except InvalidPlan:
            choices = [
                i
                for i, (op, implementation) in enumerate(kept)
                if op.implementations[implementation].overwrites
            ]
            live: set[str] = set()
            bad = _first_dead_read(graph, kept, live)
            taker = max(i for i in choices if i < bad[0] and bad[1] in _taken(kept[i]))
            kept[taker] = (kept[taker][0], 0)
    raise AssertionError("no valid plan")


def _taken(choice: tuple[Op, int]) -> tuple[str, ...]:
    return choice[0].implementations[choice[1]].overwrites


def _first_dead_read(graph: Graph, kept: list[tuple[Op, int]], live: set[str]) -> tuple[int, str]:
    live |= {v.name for v in graph.values if v.resident}
    for i, (op, implementation) in enumerate(kept):
        chosen = op.implementations[implementation]
        for name in chosen.reads:
            if name not in live:
                return i, name
        live -= {*chosen.overwrites}
        live |= {*op.writes}
    raise AssertionError("every read is of a live value")


EXACT = frozenset(
    {Kind.INPUT, Kind.OUTPUT, Kind.INTERMEDIATE, Kind.SHAPE, Kind.REPLAY, Kind.INPLACE}
)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("again", [0.0, 0.5])
def test_random_plans(attached: Captured, seed: int, again: float) -> None:
    kinds = frozenset(Kind) if seed % 2 else EXACT | {Kind.STATISTICS, Kind.ENCODED}
    plan = random_plan(attached.graph, seed, kinds, again)
    chosen = {s.implementation for s in plan.statements if isinstance(s, Compute)}
    assert len(chosen) > 5
    simulated = simulate(attached.graph, plan).peak_bytes
    measured = validator.measure(attached, plan, device="cpu", repeats=1)
    lossy = any(Kind.LOSSY in kinds_of(name or "") for name in chosen)
    exact = not lossy and measured.rounding is None
    assert measured.reason is None
    assert measured.verdict == ("exact" if exact else "lossy" if lossy else "rounding")
    assert simulated == pytest.approx(measured.measured_peak_bytes, rel=0.01)


def test_in_place_is_refused_where_it_must_be(plain: Captured, attached: Captured) -> None:
    resident = {v.name for v in plain.graph.values if v.resident}
    for op in attached.graph.ops:
        for implementation in op.implementations:
            assert not {*implementation.overwrites} & (resident | {*plain.graph.outputs})
    # The first ReLU's output is still needed: by the sum after the next convolution.
    graph = attached.graph
    statements = list(program_order(graph).statements)
    at = statements.index(Compute("relu_1"))
    statements[at] = Compute("relu_1", "inplace")
    statements.remove(Free("add_2"))
    Plan(statements)
    plan = Plan([*statements, Free("add_2")], graph.name)
    with pytest.raises(InvalidPlan, match="add_2"):
        validator.generate(attached, plan)


class Views(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        half = (x * self.weight)[:, 1:4]
        return F.relu(half) + F.relu(x)[:, :3] + F.relu(self.weight)[:, :3]


def test_views_and_residents_are_never_overwritten() -> None:
    captured = capture(workload(Views(), 4, 6))
    attached = with_alternatives(captured)
    for op in attached.graph.ops:
        if op.name.startswith("relu"):
            assert not any(Kind.INPLACE in kinds_of(i.name) for i in op.implementations)
    reasons = " ".join(r.reason for r in attached.refused if r.implementation == "inplace")
    assert "is a view" in reasons
    assert "is resident" in reasons


def test_a_denser_batch_than_measured_is_an_error() -> None:
    from rematbench.tracing.alternatives import encodings

    x = torch.randn(1000).relu()
    for encode in (encodings.to_csr, encodings.to_bitmap):
        with pytest.raises(ExecutionError, match="has room for 64 entries"):
            encode(x, 64)


def test_sparse_encodings_are_smaller_and_exact() -> None:
    from rematbench.tracing.alternatives import encodings
    from rematbench.tracing.alternatives.bits import mask_bytes

    for size in (0, 1, 255, 256, 257, 300_001):
        x = torch.randn(size).relu()
        density = x.count_nonzero().item() / max(size, 1)
        room = encodings.capacity(size, density)
        starts = 4 * (-(-size // encodings.ROW) + 1)  # of csr: one per row, and the end
        for name, encode, nbytes in (
            ("csr", encodings.to_csr, 5 * room + starts),
            ("bitmap", encodings.to_bitmap, mask_bytes(size) + 4 * room),
        ):
            parts = encode(x, room)
            assert torch.equal(encodings.DECODERS[name](list(parts), [size]), x)
            assert sum(p.nbytes for p in parts) == nbytes


def test_measurements_of_other_implementations_are_not_reused(plain: Captured) -> None:
    checker = validator.Validator(plain, "cpu", 0)
    checker.measure(program_order(plain.graph), Timing(1))
    checker.use(replace(plain, graph=costmodel.apply("flops", plain.graph, plain)))
    assert checker.measure(program_order(plain.graph), Timing(1)).measurement_reused
    checker.use(with_alternatives(plain, kinds={Kind.OUTPUT}))
    order = program_order(checker.bench.captured.graph)
    assert not checker.measure(order, Timing(1)).measurement_reused


def test_cudnn_offers_nothing_without_cuda(attached: Captured) -> None:
    names = {i.name for op in attached.graph.ops for i in op.implementations}
    assert not any(name.startswith("conv:cudnn") for name in names)


def test_alternatives_are_attached_once(attached: Captured) -> None:
    with pytest.raises(CaptureError, match="already"):
        with_alternatives(attached)


def test_only_the_kinds_that_were_asked_for(plain: Captured) -> None:
    chosen = with_alternatives(plain, kinds={Kind.OUTPUT})
    names = {i.name for op in chosen.graph.ops for i in op.implementations}
    assert {kind for name in names for kind in kinds_of(name)} == {Kind.DEFAULT, Kind.OUTPUT}
    # Side bits are the only optional ops that outputs need.
    new = {op.name for op in chosen.graph.ops} - {op.name for op in plain.graph.ops}
    assert new
    assert all(name.endswith("_side") for name in new)


@pytest.mark.parametrize("name", ["flops", "roofline", "unit"])
def test_cost_models_price_every_implementation(attached: Captured, name: str) -> None:
    graph = costmodel.apply(name, attached.graph, attached)
    for op in graph.ops:
        for implementation in op.implementations:
            assert implementation.cost > 0
    convolution = graph.ops[graph.op_index["convolution_1"]]
    by_name = {i.name: i for i in convolution.implementations}
    assert by_name["conv:chunk2"].workspace_bytes > 0
    if name == "flops":
        assert by_name["conv:chunk2"].cost == by_name["default"].cost


def test_an_implementation_may_read_its_own_results_only_to_recompute() -> None:
    values = (Value("x", 8, True), Value("y", 8), Value("s", 2))
    first = Implementation("default", ("x",), 3.0)
    again = Implementation("statistics", ("x", "s"), 1.0)
    graph = Graph("own", values, (Op("f", Phase.FORWARD, ("y", "s"), (first, again)),), ("y",))
    plan = Plan.of_computes(graph, [0, 1])
    assert simulate(graph, plan).cost == 4.0
    with pytest.raises(InvalidPlan, match="reads 's'"):
        simulate(graph, Plan.of_computes(graph, [1]))
    with pytest.raises(GraphError, match="cycle"):
        Graph("own", values, (Op("f", Phase.FORWARD, ("y", "s"), (again,)),), ("y",))
