"""link= and host=: what they mean, in rows, keys and errors."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rematbench.base.errors import ConfigError
from rematbench.cli.verify import main, verify
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_graph, write_plan
from rematbench.graphs.link import Link
from rematbench.graphs.link_choice import LinkChoice, read_link
from rematbench.graphs.plan import Fetch, Free, Offload, Plan, program_order
from rematbench.jobs.links import expanded, read_words


def offloading() -> Plan:
    """unit_chain(2), whose first layer goes to the host after its last forward read."""
    first, second, *rest = program_order(unit_chain(2)).statements
    away = (Offload("layer0"), Free("layer0"))
    back = [each for each in rest if each != Free("layer0")]
    place = next(i for i, each in enumerate(back) if getattr(each, "op", "") == "grad_layer0")
    return Plan((first, second, *away, *back[:place], Fetch("layer0"), *back[place:]),
                "unit_chain2")  # fmt: skip


def test_names_and_overrides() -> None:
    none = {"out": None, "in": None, "latency": None, "shared": False}
    assert read_link(None) == read_link({"name": "none"}) == LinkChoice()
    pcie = read_link({"name": "pcie4", **none})
    assert pcie.of("second") == Link(25e9, 25e9, 1e-5)
    half = read_link({"name": "pcie4", **none, "out": "10GB/s", "shared": True})
    assert half.of("second") == Link(10e9, 25e9, 1e-5, shared=True)
    units = read_link({"name": "given", **none, "out": 2, "in": 3, "latency": 0.5})
    assert units.of("flop") == units.of("second") == Link(2.0, 3.0, 0.5)
    assert not read_link({"name": "pcie4", **none, "out": 2, "in": 3}).per_second


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "pcie9"}, "link=pcie9: unknown; did you mean pcie"),
        ({"name": "given", "out": 1}, "link=given: link.in is missing; give"),
        ({"name": "none", "out": 1}, "link.out=1: there is no link; give link=given"),
        ({"name": "pcie4", "out": -1}, "link.out=-1: no bandwidth"),
        ({"name": "pcie4", "in": "fast"}, "link.in=fast: no bandwidth"),
        ({"name": "pcie4", "latency": "soon"}, "link.latency=soon: give cost units"),
        ({"name": "pcie4", "latency": -1}, "link.latency=-1"),
        ({"name": "pcie4", "shared": 1}, "link.shared=1: give true or false"),
    ],
)
def test_bad_links_name_their_key(given, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_link(given)
    assert said in str(caught.value)


def test_costs_that_are_no_seconds_say_what_to_give() -> None:
    with pytest.raises(
        ConfigError,
        match=r"costs are in flop; give link=given .* per flop, or .*costmodel=roofline",
    ):
        read_link({"name": "pcie4"}).of("flop")


def test_a_bandwidth_alone_is_a_link() -> None:
    assert expanded(["link=1GB/s"]) == ["link=given", "link.out=1GB/s", "link.in=1GB/s"]
    link, host = read_words(["link=1GB/s", "host=2KiB"])
    assert (link.out, link.into, link.per_second, host) == (1e9, 1e9, True, 2048)
    assert read_words([]) == (LinkChoice(), None)
    with pytest.raises(ConfigError, match="links=pcie4: unknown"):
        read_words(["links=pcie4"])


def test_links_survive_the_way_to_the_worker() -> None:
    choice = read_link({"name": "pcie3"})
    assert LinkChoice(**json.loads(json.dumps(asdict(choice)))) == choice


def test_verify_takes_link_and_host(tmp_path: Path, monkeypatch, capsys) -> None:
    graph, plan = unit_chain(2), offloading()
    bare = verify(graph, plan)
    assert bare["status"] == "failed"
    assert "no link to the host" in str(bare["reason"])
    assert "give link=pcie4" in str(bare["reason"])
    choice = LinkChoice("given", 0.5, 0.5)
    row = verify(graph, plan, choice)
    assert row["status"] == "ok"
    assert row["extra"]["host_peak_bytes"] == row["extra"]["offloaded_bytes"] == 1
    assert row["cost"] == row["extra"]["compute_cost"] + row["extra"]["waiting"]["compute"]
    small = verify(graph, plan, choice, host=0)
    assert small["status"] == "infeasible"
    write_graph(tmp_path / "g.graph.json", graph)
    write_plan(tmp_path / "p.plan.json", plan)
    files = [str(tmp_path / "g.graph.json"), str(tmp_path / "p.plan.json")]
    words = ["link=given", "link.out=0.5", "link.in=0.5", "host=1GiB"]
    monkeypatch.setattr("sys.argv", ["rematbench-verify", *files, *words])
    main()
    assert "ok" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["rematbench-verify", *files, "link=pcie4"])
    with pytest.raises(SystemExit, match="costs are in unit; give"):
        main()
