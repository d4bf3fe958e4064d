"""What ``extra`` holds of measurements that are objects of their own: their keys and types.

The dataclasses that they are made from lie in rooms above and beside (``validator/``).
"""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means


class InexactFacts(TypedDict):
    """`extra.rounding`"""

    float64_error: Annotated[
        float | None,
        Means("largest difference in double precision, over each tensor's largest entry", "ratio"),
    ]
    float64_reason: Annotated[
        str | None, Means("why there is none, or what else than the plan's statements ran")
    ]
    float64_reference: Annotated[
        str | None,
        Means("eager, or captured: where the model computes something else in double precision"),
    ]
    alone_count: Annotated[int, Means("implementations that were compared alone")]
    alone_error: Annotated[
        float | None, Means("of the one that is closest to what is allowed, or exceeds it", "ratio")
    ]
    alone_tolerance: Annotated[
        float | None,
        Means("what it is allowed: what it states, or more where the device rounds more", "ratio"),
    ]
    alone_worst: Annotated[str | None, Means("its op and name")]
    lossy_error: Annotated[float | None, Means("largest of a lossy one alone", "ratio")]
    reason: Annotated[str | None, Means("what is wrong; null: nothing")]


class LoweredRun(TypedDict, total=False):
    """What was measured when PyTorch itself ran a step; both parts of `extra.lowered`"""

    status: Annotated[
        str, Means("ok, failed (an exception, or wrong results), or not_applicable, by its reason")
    ]
    reason: Annotated[str | None, Means("why it is not ok")]
    measured_peak_bytes: Annotated[int | None, Means("of a warm step, with residents", "bytes")]
    measured_seconds: Annotated[float | None, Means("of a warm step, the median", "seconds")]
    eager_seconds: Annotated[float | None, Means("the same of eager training", "seconds")]
    eager_peak_bytes: Annotated[int | None, Means("the same", "bytes")]
    gradient_max_error: Annotated[
        float | None, Means("against eager training, over the largest entry", "ratio")
    ]
    gradient_bitwise: Annotated[
        bool | None, Means("is every bit of loss, gradients and buffers equal?")
    ]
    compile_seconds: Annotated[
        float | None, Means("of the first two steps, less two warm ones", "seconds")
    ]


class NativeFacts(LoweredRun, total=False):
    """`extra.native`; both parts of `extra.lowered`, but for how it ran"""

    how: Annotated[str, Means("torch.compile, or checkpoint")]
    ratio: Annotated[float | None, Means("torch.compile: of the partitioner's budget, 0 to 1")]
    solver: Annotated[str | None, Means("torch.compile: of the partitioner's knapsack")]
    recomputed: Annotated[list[str], Means("torch.compile: ops, in place of a solver")]
    segments: Annotated[int | None, Means("checkpoint: of a sequence; null: sqrt of its length")]
    attention: Annotated[bool, Means("checkpoint: each call of scaled_dot_product_attention")]
    kept: Annotated[list[str], Means("checkpoint: names of ops that are not recomputed")]
    every: Annotated[int, Means("checkpoint: each of them so many")]
    always: Annotated[list[str], Means("checkpoint: names of ops of which each is kept")]
    wrapped: Annotated[list[str], Means("checkpoint: names of the modules in segments")]


class LoweredFacts(TypedDict):
    """What is in `extra.lowered`."""

    aot: LoweredRun
    inductor: LoweredRun


NESTED = (InexactFacts, NativeFacts)
"""Those with keys of their own, in the order of the page."""
