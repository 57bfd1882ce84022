"""What is odd about clusters that Envoys listen for."""

from __future__ import annotations

import pytest

from reachline.doors import reach


def warnings(text: str) -> list[str]:
    return [str(each) for each in reach.read(text, name="d.yaml", environ={}).warnings]


@pytest.mark.parametrize(
    ("other", "listen", "is_said"),
    [
        ("http://10.0.0.1:80", "127.0.0.1:9000", True),
        ("tcp://10.0.0.1:80", "{at: '127.0.0.1:9000', protocol: http}", True),
        ("tcp://10.0.0.1:80", "127.0.0.1:9000", False),
        ("grpcs://10.0.0.1:443", "127.0.0.1:9000", False),
        ("http://10.0.0.1:80", "[]", False),
    ],
)
def test_grpc_lines_beside_others_are_spoken_to_by_http_1_and_it_is_said(
    other: str, listen: str, is_said: bool
) -> None:
    found = warnings(f"clusters: {{shop: {{lines: {{a: '{other}', b: 'grpc://10.0.0.2:50051'}}, listen: {listen}}}}}")

    assert [("shop.lines.b" in each and "HTTP/1.1" in each) for each in found] == ([True] if is_said else [])
