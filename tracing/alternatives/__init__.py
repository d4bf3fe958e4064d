"""Other implementations of captured ops, and the optional ops that they need.

How to get them::

    captured = with_alternatives(capture(workload))           # everything
    captured = with_alternatives(captured, kinds={Kind.OUTPUT, Kind.INPLACE})
    captured = with_alternatives(captured, density=validator.densities(captured, "cpu", seed=0))
    graph = costmodel.apply("profiled", captured.graph, captured)   # costs and workspaces

What changes: ``captured.graph`` has more implementations per op and more ops; ``captured.code``
runs them; ``captured.traits[op, implementation]`` holds tolerance (0: bitwise), flops and replayed
op; ``captured.refused`` says what could not be offered, and why. The default implementations and
what reads them stay as they were: nothing needs the new ops by default, so checkpoint-all skips
them (:meth:`rematbench.graphs.ir.Graph.needed_ops`), and its plan, peak, cost and bits are
unchanged.

How to tell them apart: by name, :func:`rematbench.graphs.kinds.kinds_of`, which works on graph
files too.

=====================  ==========================================================================
name                   of which ops
=====================  ==========================================================================
``conv:channels_last`` ``conv:chunk2|8`` ``conv:im2col`` ``conv:im2col_image`` ``conv:fft``
                       ``conv:winograd`` ``conv:winograd_image``: 2-d convolutions and their
                       gradients (no transforms of the parameter gradient); on CUDA also
                       ``conv:cudnn<n>``, see :mod:`rematbench.tracing.alternatives.cudnn`
``input``              ReLU backward (PyTorch's default reads the output)
``output``             hardtanh (ReLU6), leaky ReLU, batch norm and layer norm backward
``output:side_bits``   SiLU and GELU backward, with a bit from the optional op ``<input>_side``
``intermediate:bits``  ReLU, hardtanh, leaky ReLU and dropout backward, with ``<value>_bits`` or
                       ``<value>_positive``
``intermediate:``      ``offsets8|4``: max-pool backward, with ``<indices>_offsets8|4``
``shape``              max-pool backward by its indices alone, and input gradients of
                       convolutions: neither reads the activation that the default asks for
``parts``              convolution of a concatenation along the channels, part by part, and its
                       parameter gradient: they read the parts; ``parts:winograd_image``
``parts:copy``         sum of gradients that reads a copy, ``<part>_part``, of the part that it
                       needs of a larger one; ``parts:copy+inplace`` overwrites that copy
``replay``             dropout backward without a mask: drawn again from its seed
``inplace``            ReLU, hardtanh, leaky ReLU, batch norm; sums: ``inplace:first|second``
``statistics``         batch norm again: reads its own saved statistics, so it can only
                       recompute; also ``statistics+inplace``
``encoded:csr|bitmap`` Gist's sparse storage, with ``<value>_csr|bitmap``; exact; only where the
                       density was measured
``lossy:fp16``         Gist's delayed precision reduction, with ``<value>_fp16``; *lossy*
=====================  ==========================================================================

``lossy`` and ``encoded`` take ``:<value>`` where an op has several values to decode.

In-place implementations exist only where the value overwritten is neither resident, nor an
output of the step, nor a view, and matches the result in shape, layout and type. Whether it is
still needed depends on the plan: a later read is an invalid plan, which the simulator and
:func:`rematbench.validator.generate` refuse.

References: MONeT (Shah et al., 2021), sections 3 and 4; Gist (Jain et al., 2018), section 4.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from rematbench.base.errors import CaptureError
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value
from rematbench.graphs.kinds import ImplementationTraits, Kind, Refusal, kinds_of
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.tracing.alternatives import convolution_rules, cudnn, norm_rules, pointwise_rules
from rematbench.tracing.alternatives.concatenation_rules import parts_of
from rematbench.tracing.alternatives.encoding_rules import encodings_of
from rematbench.tracing.alternatives.scene import Declined, Offer, OptionalOp, Rule, Scene, entries
from rematbench.tracing.captured import Captured, TorchCall, call_reads

__all__ = ["ImplementationTraits", "Kind", "Refusal", "kinds_of", "with_alternatives"]

_RULES: dict[Any, Rule] = {
    **pointwise_rules.RULES,
    **norm_rules.RULES,
    **convolution_rules.RULES,
}


def with_alternatives(
    captured: Captured,
    kinds: Collection[Kind] | None = None,
    density: Mapping[str, float] | None = None,
) -> Captured:
    """``captured`` with every implementation that applies, and the optional ops they need.

    Args:
        kinds: the kinds to offer; None for all of them.
        density: share of entries that are not zero, by value name, for sparse encodings.

    Raises:
        CaptureError: it has alternatives already.
    """
    if any(len(op.implementations) > 1 for op in captured.graph.ops):
        raise CaptureError(
            f"graph {captured.graph.name!r} has alternatives already; attach them once, to what "
            "capture returned"
        )
    builder = _Builder(Scene(captured, density or {}), frozenset(Kind if kinds is None else kinds))
    builder.collect()
    return builder.build()


class _Builder:
    """Collects what the rules find, then assembles the new graph."""

    def __init__(self, scene: Scene, kinds: frozenset[Kind]) -> None:
        self.scene, self.captured, self.kinds = scene, scene.captured, kinds
        self.offers: dict[str, dict[str, Offer]] = {}
        self.extras: dict[str, OptionalOp] = {}
        self.refused: list[Refusal] = []
        # An op that needs more than checkpoint-all's peak is of no use to any plan.
        graph = scene.captured.graph
        self.most = simulate(graph, program_order(graph)).peak_bytes

    def collect(self) -> None:
        for op in self.captured.graph.ops:
            call = self.captured.code[op.name]["default"][0]
            rule = _RULES.get(call.target)
            if rule is not None:
                for found in rule(self.scene, op, call):
                    self._take(op.name, found)
            for found in cudnn.offers(self.scene, op, call):
                self._take(op.name, found)
        for name, item in (*encodings_of(self.scene), *parts_of(self.scene)):
            self._take(name, item)

    def _take(self, op: str, found: Offer | OptionalOp | Declined) -> None:
        if isinstance(found, OptionalOp):
            self.extras.setdefault(found.name, found)
            return
        if not kinds_of(found.name) <= self.kinds:
            return
        if isinstance(found, Declined):
            self.refused.append(Refusal(op, found.name, found.reason))
        elif found.workspace_bytes > self.most:
            reason = (
                f"its workspace of {found.workspace_bytes} bytes is more than checkpoint-all's "
                f"peak of {self.most}"
            )
            self.refused.append(Refusal(op, found.name, reason))
        else:
            self.offers.setdefault(op, {})[found.name] = found

    def build(self) -> Captured:
        extras = self._needed()
        new = {name: spec for extra in extras for name, spec in extra.outs.items()}
        value_of = {**self.captured.value_of, **{name: name for name in new}}
        sizes = [Value(name, spec.dtype.itemsize * entries(spec)) for name, spec in new.items()]
        after: dict[str, list[OptionalOp]] = {}
        for extra in extras:
            after.setdefault(extra.after, []).append(extra)
        ops: list[Op] = []
        code: dict[str, Mapping[str, tuple[TorchCall, ...]]] = {}
        for op in self.captured.graph.ops:
            ops.append(self._with_offers(op, value_of))
            code[op.name] = self._code(op)
            for extra in after.get(op.name, ()):
                ops.append(_optional(extra, op.phase, value_of))
                code[extra.name] = {"default": (extra.call,)}
        base = self.captured.graph
        graph = Graph(base.name, (*base.values, *sizes), tuple(ops), base.outputs, base.cost_unit)
        return replace(
            self.captured,
            graph=graph,
            code=code,
            tensors={**self.captured.tensors, **new},
            value_of=value_of,
            traits=self._traits(extras),
            refused=tuple(self.refused),
        )

    def _needed(self) -> list[OptionalOp]:
        """Optional ops that some offer reads, in the order in which they were found."""
        wanted = {
            ref
            for offers in self.offers.values()
            for offer in offers.values()
            for ref in call_reads(offer.root)
        }
        return [extra for extra in self.extras.values() if wanted.intersection(extra.outs)]

    def _code(self, op: Op) -> dict[str, tuple[TorchCall, ...]]:
        calls = self.captured.code[op.name]["default"]
        offers = self.offers.get(op.name, {})
        return {"default": calls} | {
            name: (offer.root, *calls[1:]) for name, offer in offers.items()
        }

    def _with_offers(self, op: Op, value_of: Mapping[str, str]) -> Op:
        views = self.captured.code[op.name]["default"][1:]
        theirs = {value_of[ref] for call in views for ref in call_reads(call)} - {*op.writes}
        others = tuple(
            Implementation(
                offer.name,
                tuple(
                    sorted({*(value_of[r] for r in call_reads(offer.root)), *theirs, *offer.needs})
                ),
                op.cost,
                offer.workspace_bytes,
                offer.overwrites,
                offer.traits.replays,
            )
            for offer in self.offers.get(op.name, {}).values()
        )
        return replace(op, implementations=(*op.implementations, *others))

    def _traits(self, extras: list[OptionalOp]) -> dict[tuple[str, str], ImplementationTraits]:
        found = {
            (op, name): offer.traits
            for op, offers in self.offers.items()
            for name, offer in offers.items()
        }
        return found | {(extra.name, "default"): extra.traits for extra in extras}


def _optional(extra: OptionalOp, after: Phase, value_of: Mapping[str, str]) -> Op:
    reads = tuple(sorted({value_of[ref] for ref in call_reads(extra.call)}))
    implementation = Implementation("default", reads, 1.0, extra.workspace_bytes)
    phase = Phase.BACKWARD if after is Phase.BACKWARD else Phase.FORWARD
    target = extra.call.operator
    return Op(extra.name, phase, tuple(extra.outs), (implementation,), target=target)
