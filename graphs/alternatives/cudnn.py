"""placeholder"""
from __future__ import annotations
from collections.abc import Iterator
from graphs.alternatives.scene import Offer, Scene
from graphs.capture import Call
from graphs.ir import Op
def offers(scene: Scene, op: Op, call: Call) -> Iterator[Offer]:
    return iter(())
