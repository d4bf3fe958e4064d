"""Devices by their data sheets, for the roofline model."""

from __future__ import annotations

from dataclasses import dataclass

from rematbench.base.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Machine:
    """A device by its data sheet.

    Attributes:
        name: as sold.
        flops: peak single-precision floating-point operations per second, no tensor cores.
        bandwidth: memory bandwidth in bytes per second.
        memory_bytes: of the card.
    """

    name: str
    flops: float
    bandwidth: float
    memory_bytes: int


MACHINES = {
    "v100": Machine("NVIDIA V100 SXM2 16GB", 15.7e12, 900e9, 16 * 2**30),
    "p100": Machine("NVIDIA P100 SXM2 16GB", 10.6e12, 732e9, 16 * 2**30),
    "titan_v": Machine("NVIDIA Titan V", 14.9e12, 653e9, 12 * 2**30),
    "rtx_2080_ti": Machine("NVIDIA RTX 2080 Ti", 13.4e12, 616e9, 11 * 2**30),
    "a100": Machine("NVIDIA A100 SXM 80GB", 19.5e12, 2039e9, 80 * 2**30),
    "h100": Machine("NVIDIA H100 SXM 80GB", 67e12, 3350e9, 80 * 2**30),
}


def machine_called(preset: str) -> Machine:
    """A device by its short name.

    Raises:
        ConfigError: none has it.
    """
    found = MACHINES.get(preset)
    if found is None:
        known = ", ".join(MACHINES)
        raise ConfigError(f"costmodel.preset={preset}: unknown machine; use one of {known}")
    return found
