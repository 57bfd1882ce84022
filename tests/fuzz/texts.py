"""Documents and texts that people write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic_core import PydanticCustomError
from tests.fuzz.target import (
    ROOT,
    Target,
    text_of,
)

from reachline.cli.watch_targets import Pace, read_targets
from reachline.doors import observatory, outbounds, reach, units
from reachline.doors.addresses import masked, parse_target
from reachline.doors.composer import compose
from reachline.errors import ConfigError, Problem, RemoteProtocolError
from reachline.talk.literal import literal
from reachline.wire.observatory import read_info, read_override
from reachline.wire.xray_handler import read_added_inbound, read_added_outbound
from reachline.wire.xray_route import read_route

__all__ = ["texts_targets"]


def _target(text: str) -> None:
    endpoint = parse_target(text)
    assert parse_target(str(endpoint)) == endpoint, "what is shown is what is read"


def _via(text: str) -> None:
    """A password is not shown; one that stands in the text more than once may be somebody's name as well."""
    secrets = [hop.password for hop in outbounds.hops(text) if len(hop.password) > 1 and text.count(hop.password) == 1]
    shown = outbounds.without_password(text)
    assert not any(secret in shown for secret in secrets)


def _any_unit(text: str) -> None:
    for read in (units.duration, units.share, units.size):
        try:
            read(text)
        except PydanticCustomError:
            continue
    units.seconds(text)
    masked(text)


def _compose(text: str) -> None:
    composed = compose(text, name="x")
    assert composed.whole or composed.troubles


def _watched(text: str) -> None:
    read_targets([text], Pace())


def _document(text: str) -> None:
    reach.read(text, name="x", environ={}, secret_file=lambda _: "secret")


YAML_TOKENS: Final = (
    b": ", b"- ", b"\n", b"\n  ", b"{", b"}", b"[", b"]", b"&a ", b"*a", b"<<: *a", b"!!python/object:os.system ", b"|\n", b"'", b'"',
    b"#", b"%YAML 1.2\n---\n", b"---\n", b"? ", b"~", b"${env:X}", b"${file:/x}", b"\t", b"5s", b"100ms", b"\xef\xbb\xbf",
)  # fmt: skip


XRAY: Final = tuple(
    json.dumps(each).encode()
    for each in (
        {
            "outbounds": [
                {
                    "tag": "a",
                    "protocol": "socks",
                    "settings": {"servers": [{"address": "h", "port": 1, "users": [{"user": "u", "pass": "q7x9zz"}]}]},
                },
                {"tag": "b", "protocol": "freedom", "sendThrough": "192.0.2.1"},
            ],
            "burstObservatory": {"subjectSelector": ["a"], "pingConfig": {"interval": "1m", "sampling": 3}},
        },
        {
            "OUTBOUNDS": [
                {
                    "tag": "a",
                    "protocol": "http",
                    "settings": {"address": "h", "port": 1},
                    "proxySettings": {"tag": "b"},
                },
                {"tag": "b", "protocol": "vless"},
            ],
            "observatory": {"subjectSelector": ["a"], "probeInterval": "1s"},
            "routing": {
                "balancers": [
                    {"tag": "x", "selector": ["a"], "strategy": {"type": "leastLoad", "settings": {"expected": 2}}}
                ],
                "rules": [{"port": 443, "balancerTag": "x"}],
            },
        },
        [{"remarks": "a", "outbounds": []}],
    )
)


_ADDED_OUTBOUND: Final = (
    b"\n\x93\x01\n\x01s\x128\n\x1exray.app.proxyman.SenderConfig\x12\x16\n\x06\n\x04\n\x00\x00\x07\x12\x0c*\x03tcp2\x05j\x03wg0"
    b"\x1aT\n\x1dxray.proxy.socks.ClientConfig\x123\n1\n\x06\n\x04\n\x00\x00\x01\x10\xb8\x08"
    b'\x1a$\x1a"\n\x18xray.proxy.socks.Account\x12\x06\n\x01u\x12\x01p'
)
_ADDED_INBOUND: Final = (
    b"\nj\n\x01i\x126\n xray.app.proxyman.ReceiverConfig\x12\x12\n\x08\n\x06\x08\xb8\x08\x10\xb9\x08\x12\x06\n\x04\x7f\x00\x00\x01"
    b"\x1a-\n\x1dxray.proxy.socks.ServerConfig\x12\x0c\x08\x01\x12\x06\n\x01u\x12\x01p \x01"
)
"""Requests of HandlerService."""


def _handler(request: bytes) -> None:
    for block in (read_added_outbound(request), read_added_inbound(request)):
        json.dumps(block)  # a document may have it
        assert isinstance(block["protocol"], str)


def _xray(text: str) -> None:
    """A password is told nowhere."""
    found: Sequence[Problem] = ()
    try:
        found = observatory.read(text).warnings
    except ConfigError as error:
        found = error.problems
        raise
    finally:
        assert '"pass": "q7x9zz"' not in text or not any("q7x9zz" in each.value for each in found)


def _documents() -> tuple[bytes, ...]:
    small = (
        b"clusters:\n  shop:\n    lines: ['tcp://10.0.0.1:443', 'https://b.example/healthz']\n",
        b"clusters:\n  shop:\n    probes: {tcp: 5s, http: {every: 30s, expect: 200}}\n    lines:\n      a: {to: 'tcp://10.0.0.1:443', via: 'socks5://u:p@10.0.0.9:1080', role: primary}\n",
        b"agents: {one: {locality: {region: r1, zone: az1}, token: t}}\ncenter: {grpc: '127.0.0.1:0'}\nclusters: {}\n",
    )
    return (*small, *((ROOT / "examples" / name).read_bytes() for name in ("minimal.yaml", "quickstart.yaml")))


def texts_targets() -> Iterator[Target]:
    custom = (PydanticCustomError,)
    urls = (b"tcp://", b"https://", b"[::1]", b"@", b":", b"/", b"?", b"#", b"%00", b"://", b",", b"direct")
    yield Target(
        name="cli.watch_targets",
        run=text_of(_watched),
        is_slow=True,
        errors=(ConfigError,),
        seeds=(
            b"tcp://10.0.0.1:443?via=socks5://e:s@10.0.0.9:1080&source=127.0.0.1",
            b"a.example",
            b"dns://127.0.0.1/a.test?type=AAAA",
            b"redis://127.0.0.1?key=x",
        ),
        tokens=(*urls, b"via=", b"source=", b"interface=", b"&"),
    )
    yield Target(
        name="doors.addresses",
        run=text_of(_target),
        errors=(ValueError,),
        seeds=(b"tcp://10.0.0.1:443", b"https://[fe80::1]:8443/x?y=1", b"dns://127.0.0.1/a.test", b"icmp://a.example"),
        tokens=urls,
    )
    yield Target(
        name="doors.outbounds",
        run=text_of(_via),
        errors=custom,
        seeds=(b"socks5://eve:s3cret@10.0.0.9:1080,http://p.example:3128", b"direct"),
        tokens=(*urls, b"socks5h://"),
    )
    yield Target(
        name="doors.units",
        run=text_of(_any_unit),
        errors=custom,
        seeds=(b"1m30s", b"100ms", b"1.5%", b"2GB"),
        tokens=(b"e9", b"9" * 40, b".", b"%"),
    )
    yield Target(
        name="talk.literal",
        run=text_of(literal),
        errors=(ValueError,),
        seeds=(rb"PING\r\n\x00", b"hex:50494e47"),
        tokens=(rb"\x", b"\\", b"hex:"),
    )
    yield Target(name="doors.composer", run=text_of(_compose), errors=(), seeds=_documents(), tokens=YAML_TOKENS)
    yield Target(
        name="doors.reach",
        run=text_of(_document),
        is_slow=True,
        errors=(ConfigError,),
        seeds=_documents()[:3],
        tokens=YAML_TOKENS,
    )
    yield Target(
        name="wire.observatory",
        run=read_override,
        errors=(RemoteProtocolError,),
        seeds=(b"\x0a\x01b\x12\x06target", b"\x18\x07\x0a\x01a\x21" + bytes(8)),
        tokens=(b"\x0a\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\x0b", b"\x2d"),
    )
    yield Target(
        name="wire.observatory.info",
        run=read_info,
        errors=(RemoteProtocolError,),
        seeds=(b"\x0a\x0d\x2a\x04\x12\x02s1\x32\x05\x0a\x03s-2",),
        tokens=(b"\x0a\xff\xff\xff\xff\x0f", b"\x2a\x00", b"\x12\xff", b"\x0b"),
    )
    yield Target(
        name="wire.xray_route",
        run=read_route,
        errors=(RemoteProtocolError,),
        seeds=(b"\x0a\x1c\x0a\x02in\x10\x02\x22\x04\x0a\x00\x00\x01\x30\xbb\x03\x3a\x0bexample.com\x12\x02ip",),
        tokens=(b"\x0a\xff\xff\xff\xff\x0f", b"\x22\x03abc", b"\x30\xff\xff\x7f", b"\x12\x01\xff"),
    )
    yield Target(
        name="wire.xray_handler",
        run=_handler,
        errors=(RemoteProtocolError,),
        seeds=(_ADDED_OUTBOUND, _ADDED_INBOUND),
        tokens=(b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x03abc", b"\x12\x00", b"xray.proxy.", b"\x12\x01\xff"),
    )
    yield Target(
        name="doors.observatory",
        run=text_of(_xray),
        errors=(ConfigError,),
        seeds=XRAY,
        tokens=(b"//", b"/*", b"*/", b"#", b",", b"null", b'"\\ud800"', b"{{", b"1e9", b'"10s"', b"[]", b"{}"),
    )
