"""What Gist's encodings cost where they run: its step beside eager training's, in CPU seconds.

``python -m benchmarks.gist_cpu`` writes ``runs/benchmarks/gist_cpu.json``, which docs/claims.csv
quotes. A roofline sees only the bytes that an encoding moves. VGG-16 is executed on one core, with
what was measured to be sparse stored sparsely; its gradients are judged first.
"""

from __future__ import annotations

from functools import partial
from time import process_time

import torch

from benchmarks.figures import Figure, publish
from rematbench import costmodel
from rematbench.base.errors import RematbenchError
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.gist.planner import Gist
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.validator import densities
from rematbench.validator.check import Validator
from rematbench.validator.codegen import generate
from rematbench.zoo import make_model

NETWORK, BATCH, PIXELS = "vgg16", 8, 96
TURNS = 3
"""Steps of each, in turns; the quickest counts."""


def with_encodings(strategy: Gist) -> Captured:
    """The network with the implementations that Gist chooses from, costed by a roofline."""
    plain = capture(make_model(NETWORK, batch_size=BATCH, resolution=PIXELS))
    density = densities(plain, "cpu", 0)
    made = with_alternatives(plain, strategy.kinds, density)
    return made.with_graph(costmodel.apply("roofline", made.graph, made))


def main() -> None:
    """Judge, measure, print, write."""
    torch.set_num_threads(1)
    strategy = Gist()
    made = with_encodings(strategy)
    plan = strategy.plan(Problem(made.graph, None, 60.0)).plan
    assert plan is not None
    validator = Validator(made, "cpu", 0)
    program = generate(made, plan)
    judged = validator.check(program)
    if judged.reason is not None:
        raise RematbenchError(f"{NETWORK}: {judged.reason}")
    ways = {"gist": partial(validator.bench.run, program), "eager": validator.bench.eager}
    least = dict.fromkeys(ways, float("inf"))
    before = validator.bench.buffers()
    for _ in range(TURNS):
        for name, step in ways.items():
            began = process_time()
            step()
            least[name] = min(least[name], process_time() - began)
            validator.bench.clear(before)
    base = simulate(made.graph, program_order(made.graph)).cost
    modelled = 100 * (simulate(made.graph, plan).cost / base - 1)
    measured = 100 * (least["gist"] / least["eager"] - 1)
    title = f"{NETWORK}, {BATCH} images of {PIXELS} px, overhead of gist"
    figures = [
        Figure(f"{title}: by a V100's roofline", modelled, None, "%"),
        Figure(f"{title}: measured on a CPU", measured, None, "%"),
        *(
            Figure(f"{NETWORK}, a step: {name}", taken, None, "CPU s")
            for name, taken in least.items()
        ),
    ]
    publish("gist_cpu", figures)


if __name__ == "__main__":
    main()
