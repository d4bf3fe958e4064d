"""A suite for tests: ``conf/suite.yaml`` on the CPU, with other keys as given."""

from __future__ import annotations

from pathlib import Path

from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from rematbench.cli.plugins import register_plugins
from rematbench.cli.resolvers import register_resolvers
from rematbench.cli.suite import Suite, suite_from


def made(folder: Path, **given: object) -> Suite:
    register_plugins()
    register_resolvers()
    with initialize_config_module("rematbench.conf", version_base="1.3"):
        config = compose("suite", ["device=cpu", "device.repeats=2", "planners=1"])
        plain = OmegaConf.to_container(config, resolve=True)
        assert isinstance(plain, dict)
        known = {str(key): value for key, value in plain.items()}
        return suite_from(known | {"cache": None, "out": str(folder), "time_limit": 5} | given)
