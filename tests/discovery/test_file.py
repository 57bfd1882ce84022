"""Endpoints in a file: replaced as editors and Kubernetes do it, and bad files that change nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing

import pytest

pytest.importorskip("envoy.service.discovery.v3.discovery_pb2", reason="xds-protos is not installed")

from reachline.discovery import TABLE
from reachline.discovery.file import File

LONGEST = 20.0
TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"


def assignment(*hosts, name="a"):
    found = [{"endpoint": {"address": {"socket_address": {"address": host, "port_value": 80}}}} for host in hosts]
    return {"@type": TYPE, "cluster_name": name, "endpoints": [{"lb_endpoints": found}]}


def document(*resources):
    return json.dumps({"version_info": "1", "resources": list(resources)})


def put(path, text):
    """As an editor does: written beside it, then moved over it."""
    beside = path.with_suffix(".new")
    beside.write_text(text)
    beside.rename(path)


async def step(updates):
    async with asyncio.timeout(LONGEST):
        update = await anext(updates)
    return [each.address.host for each in update.membership.members], update


def first(path, text):
    """The first update of a file with this content."""
    path.write_text(text)

    async def main():
        async with aclosing(File(path, "a").watch()) as updates:
            return await step(updates)

    return asyncio.run(main())


def test_a_file_moved_into_its_place_is_read_and_a_bad_one_changes_nothing(tmp_path) -> None:
    path = tmp_path / "eds.json"
    path.write_text(document(assignment("10.0.0.1"), assignment("10.9.9.9", name="b")))

    async def main():
        async with aclosing(File(path, "a").watch()) as updates:
            assert (await step(updates))[0] == ["10.0.0.1"]

            put(path, "{")
            hosts, update = await step(updates)
            assert (hosts, update.is_change) == (["10.0.0.1"], False)
            assert update.trouble.startswith(f"{path}: a: is no JSON: ")

            put(path, document(assignment("10.0.0.1", "10.0.0.2")))
            hosts, update = await step(updates)
            assert (hosts, update.trouble) == (["10.0.0.1", "10.0.0.2"], "")
            assert [each.address.host for each in update.added] == ["10.0.0.2"]

    asyncio.run(main())


@pytest.mark.parametrize("watchfiles", [True, False])
def test_a_symlink_swapped_as_kubernetes_does_is_followed(tmp_path, monkeypatch, watchfiles) -> None:
    if not watchfiles:
        monkeypatch.setitem(sys.modules, "watchfiles", None)  # as in an install without the daemons' extras
    for name, host in (("..one", "10.0.0.1"), ("..two", "10.0.0.2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "eds.yaml").write_text(document(assignment(host)))
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "eds.yaml").symlink_to("..data/eds.yaml")

    async def main():
        async with aclosing(File(tmp_path / "eds.yaml", "a").watch()) as updates:
            assert (await step(updates))[0] == ["10.0.0.1"]
            (tmp_path / "..tmp").symlink_to("..two")
            (tmp_path / "..tmp").rename(tmp_path / "..data")
            assert (await step(updates))[0] == ["10.0.0.2"]

    asyncio.run(main())


def test_a_file_that_is_not_there_yet_is_waited_for(tmp_path) -> None:
    path = tmp_path / "eds.json"

    async def main():
        async with aclosing(File(path, "a").watch()) as updates:
            hosts, update = await step(updates)
            assert (hosts, "cannot be read: No such file" in update.trouble) == ([], True)
            put(path, document(assignment("10.0.0.1")))
            assert (await step(updates))[0] == ["10.0.0.1"]

    asyncio.run(main())


def test_yaml_is_read_as_envoy_reads_it(tmp_path) -> None:
    text = f"""
version_info: "1"
resources:
- "@type": {TYPE}
  clusterName: a
  endpoints:
  - lbEndpoints:
    - endpoint: {{address: {{socketAddress: {{address: 10.0.0.1, portValue: 80}}}}}}
"""

    assert first(tmp_path / "eds.yaml", text)[0] == ["10.0.0.1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "line 2, column 1: is not YAML: "),
        ("a: !!timestamp x", "tag"),
        ("5", "must be a DiscoveryResponse"),
        ("nonsense: 1", 'has no field named "nonsense"'),
        (document(assignment(name="b")), "does not name it (it names b); one resource of this cluster_name belongs there"),
        (document(), "does not name it (it names none)"),
        (document(assignment(), assignment()), "names it twice"),
        (document(assignment("a.test")), "endpoints[0].lb_endpoints[0].address must be a numeric address"),
        ("[" * 350, "is nested deeper than 32 blocks"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_in_one_line(tmp_path, text, said) -> None:
    hosts, update = first(tmp_path / "eds.yaml", text)

    assert hosts == []
    assert update.trouble.startswith(f"{tmp_path / 'eds.yaml'}: ")
    assert said in update.trouble
    assert "\n" not in update.trouble


def test_every_kind_is_in_the_table_and_nothing_heavy_is_imported_before_its_use(root) -> None:
    heavy = ("grpc", "google", "envoy", "yaml", "watchfiles", "pydantic")
    program = f"import sys, reachline.discovery as d; print(*d.TABLE, *({heavy!r} & sys.modules.keys()))"
    program = program.replace(repr(heavy), repr(set(heavy)))

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == list(TABLE) == ["static", "strict_dns", "logical_dns", "file", "eds"]


def test_the_extra_for_xds_alone_is_enough() -> None:
    missing = ("apsw", "h2", "msgspec", "orjson", "pydantic", "rich", "structlog", "typer", "watchfiles")
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r})); from random import Random\n"
        "from reachline.discovery import Eds, File; import reachline.net.rpc\n"
        "from reachline.net.ads import Ads; from reachline.wire.xds import Node\n"
        "Eds(Ads('127.0.0.1:1', node=Node(id='n'), rng=Random()), 'a'); File('x.yaml', 'a')"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_the_reference_has_a_heading_for_every_kind(root) -> None:
    page = (root / "docs/reference/discovery.md").read_text()

    assert [kind for kind in TABLE if f"\n## {kind}\n" not in page] == []
