"""Where Envoys listen for clusters: what may be written, what clashes, and which lines a data plane cannot use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reachline.doors import reach
from reachline.doors.listening import Listen, Retries
from reachline.doors.settings import Document
from reachline.errors import ConfigError

LINES = "lines: ['http://10.0.0.1:80']"


def read(text: str) -> Document:
    return reach.read(text, name="d.yaml", environ={})


def problems(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return "\n".join(str(each) for each in caught.value.problems)


def clusters(**more: str) -> str:
    rows = "".join(f"  {name}:\n    {LINES}\n    listen: {listen}\n" for name, listen in more.items())
    return f"clusters:\n{rows}"


def test_an_address_alone_is_a_block_and_one_block_is_a_list() -> None:
    document = read(clusters(a="127.0.0.1:9000", b="[{at: '[::1]:9001', hosts: B.example}]"))

    assert document.clusters["a"].listen == (Listen(at="127.0.0.1:9000"),)
    assert document.clusters["b"].listen[0].hosts == ("b.example",)


def test_an_address_is_one_however_it_is_written() -> None:
    document = read(clusters(a="'127.0.0.1:09000'", b="'[0::1]:9001'"))

    assert [each.listen[0].at for each in document.clusters.values()] == ["127.0.0.1:9000", "[::1]:9001"]
    assert "takes what a takes at [::1]:9000 already" in problems(clusters(a="'[::1]:9000'", b="'[0:0::1]:09000'"))


def test_a_cluster_that_takes_the_same_twice_is_told_which_entry_would_say_nothing() -> None:
    entry = "{at: '127.0.0.1:9000', hosts: [a.example, a.example], timeout: 1s}"

    assert len(read(clusters(a=f"[{entry}]")).clusters) == 1
    assert "listen[1]" in problems(clusters(a=f"[{entry}, {entry}]"))


def test_a_port_alone_is_refused_with_what_to_write() -> None:
    assert "127.0.0.1:9000, or 0.0.0.0:9000" in problems(clusters(a="9000"))


def test_clusters_share_an_address_by_hosts_and_by_prefix() -> None:
    at = "at: 127.0.0.1:9000"

    document = read(clusters(a=f"{{{at}}}", b=f"{{{at}, prefix: /b/}}", c=f"{{{at}, hosts: ['*.c.example']}}"))

    assert [each.listen[0].prefix for each in document.clusters.values()] == ["/", "/b", "/"]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("off", Retries(most=0)),
        ("false", Retries(most=0)),
        ("0", Retries(most=0)),
        ("2", Retries(most=2)),
        ("{also: reset}", Retries(most=1, also=("reset",))),
        ("{most: 2, also: [5xx, unavailable]}", Retries(most=2, also=("5xx", "unavailable"))),
    ],
)
def test_retries_are_off_a_number_or_a_block(said: str, meant: Retries) -> None:
    document = read(clusters(a=f"{{at: 127.0.0.1:9000, retries: {said}}}", b="127.0.0.1:9001"))

    assert document.clusters["a"].listen[0].retries == meant
    assert document.clusters["b"].listen[0].retries == Retries(most=1)


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ("127.0.0.1:9000", "127.0.0.1:9000", "d.yaml:7:13: clusters.b.listen: takes what a takes"),
        ("{at: 127.0.0.1:9000, protocol: tcp}", "127.0.0.1:9000", "tcp cannot tell callers apart"),
        ("{at: 127.0.0.1:9000, protocol: tcp, prefix: /x}", "127.0.0.1:9001", "says nothing where bytes are passed on"),
        ("[{at: 127.0.0.1:9000, prefix: x}]", "127.0.0.1:9001", "clusters.a.listen[0].prefix: must begin with /"),
        ("{at: 127.0.0.1:9000, prefix: x}", "127.0.0.1:9001", "clusters.a.listen.prefix: must begin with / "),
        ("here:9000", "127.0.0.1:9001", "must be an address of the proxy's machine"),
        ("127.0.0.1:0", "127.0.0.1:9001", "must have a port"),
        ("{at: 127.0.0.1:9000, prefix: x}", "127.0.0.1:9001", "must begin with /"),
        ("{at: 127.0.0.1:9000, hosts: 'a:80'}", "127.0.0.1:9001", "must be a host name without a port"),
        ("{at: 127.0.0.1:9000, protocol: tcp, retries: 1}", "127.0.0.1:9001", "says nothing where bytes are passed on"),
        (
            "{at: 127.0.0.1:9000, retries: 6}",
            "127.0.0.1:9001",
            "d.yaml:4:43: clusters.a.listen.retries: must be at most 5 (got 6)",
        ),
        ("{at: 127.0.0.1:9000, retries: on}", "127.0.0.1:9001", "listen.retries: must be off, a number"),
        ("{at: 127.0.0.1:9000, retries: ~}", "127.0.0.1:9001", "listen.retries: must be off, a number"),
        (
            "{at: 127.0.0.1:9000, retries: 1.5}",
            "127.0.0.1:9001",
            "must be off, a number of 1…5, or a block; {also: [reset]} (got 1.5)",
        ),
        (
            "{at: 127.0.0.1:9000, retries: {also: [timeout]}}",
            "127.0.0.1:9001",
            "clusters.a.listen.retries.also[0]: must be reset or",
        ),
        ("unix:/x", "127.0.0.1:9001", "must be an address of the proxy's machine"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(a: str, b: str, said: str) -> None:
    assert said in problems(clusters(a=a, b=b))


def test_a_line_that_no_data_plane_can_use_is_told_where_an_envoy_listens() -> None:
    text = "clusters:\n  a:\n    lines:\n      x: tcp://10.0.0.1:1\n      y: {to: 'tcp://10.0.0.1:1', via: 'socks5://10.0.0.9:1'}\n"

    assert read(text).warnings == ()
    (warning,) = read(text + "    listen: 127.0.0.1:9000\n").warnings
    assert "clusters.a.lines.y" in str(warning)
    assert "goes by way of a proxy" in str(warning)


def test_a_cluster_without_a_line_that_can_be_used_is_not_listened_for() -> None:
    assert "has no line that an Envoy can use" in problems(
        "clusters: {a: {lines: ['icmp://10.0.0.1'], listen: '127.0.0.1:9000'}}"
    )


@pytest.mark.parametrize("page", ["envoy", "grpc"])
def test_the_guides_documents_are_good(root: Path, page: str) -> None:
    text = (root / f"docs/guide/{page}.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    assert blocks
    for block in blocks:
        assert read(block).warnings == ()
