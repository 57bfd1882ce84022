"""HandlerService's messages: what protobuf writes is read as the block of a document that says the same, and what is written protobuf reads."""

from __future__ import annotations

import pytest
from tests.handler_requests import add_inbound, add_outbound, client, remove, typed
from tests.xray_messages import xray_messages

from reachline.errors import RemoteProtocolError
from reachline.wire.xray_handler import (
    MAX_REQUEST,
    read_added_inbound,
    read_added_outbound,
    read_only_tags,
    read_removed,
)
from reachline.wire.xray_listed import Listening, Sending, inbounds_listed, outbounds_listed


def test_a_socks_outbound_is_read_with_its_server_and_account() -> None:
    found = read_added_outbound(add_outbound("s", client("socks", "10.0.0.1", 1080, user="u", password="p")))

    assert found == {
        "tag": "s",
        "protocol": "socks",
        "settings": {"servers": [{"address": "10.0.0.1", "port": 1080, "users": [{"user": "u", "pass": "p"}]}]},
    }


def test_an_http_outbound_is_read_with_its_headers_and_its_tls() -> None:
    messages = xray_messages()
    name = "xray.transport.internet.tls.Config"
    secure = typed(name, messages["TlsConfig"](server_name="a.example", allow_insecure=True))
    stream = messages["StreamConfig"](protocol_name="tcp", security_type=name, security_settings=[secure])
    settings = client("http", "proxy.example", 3128, header=[messages["Header"](key="X", value="1")])

    found = read_added_outbound(add_outbound("h", settings, stream_settings=stream))

    assert found["settings"] == {"servers": [{"address": "proxy.example", "port": 3128}], "headers": {"X": "1"}}
    assert found["streamSettings"] == {
        "network": "tcp",
        "security": "tls",
        "tlsSettings": {"serverName": "a.example", "allowInsecure": True},
    }


def test_a_freedom_outbound_is_read_with_where_it_leaves_from() -> None:
    messages = xray_messages()
    settings = typed("xray.proxy.freedom.Config", messages["FreedomConfig"](domain_strategy=2))
    socket = messages["SocketConfig"](interface="wg0", dialer_proxy="hop")

    found = read_added_outbound(
        add_outbound(
            "f",
            settings,
            via=messages["IPOrDomain"](ip=bytes((10, 0, 0, 7))),
            stream_settings=messages["StreamConfig"](socket_settings=socket),
            proxy_settings=messages["ProxyConfig"](tag="p"),
            multiplex_settings=messages["MultiplexingConfig"](enabled=True),
            target_strategy=1,
        )
    )

    assert found == {
        "tag": "f",
        "protocol": "freedom",
        "settings": {"domainStrategy": "UseIPv4"},
        "sendThrough": "10.0.0.7",
        "streamSettings": {
            "network": "tcp",
            "security": "none",
            "sockopt": {"interface": "wg0", "dialerProxy": "hop"},
        },
        "proxySettings": {"tag": "p"},
        "mux": {"enabled": True},
        "targetStrategy": "UseIP",
    }


@pytest.mark.parametrize(
    ("name", "protocol"),
    [("xray.proxy.vless.outbound.Config", "vless"), ("xray.proxy.trojan.ClientConfig", "trojan"), ("odd", "odd")],
)
def test_of_a_kind_that_is_not_known_its_name_is_kept(name: str, protocol: str) -> None:
    found = read_added_outbound(add_outbound("v", xray_messages()["TypedMessage"](type=name, value=b"\xff")))

    assert (found["protocol"], found["settings"]) == (protocol, {})


@pytest.mark.parametrize(
    ("name", "message", "fields", "settings"),
    [
        ("xray.proxy.blackhole.Config", "BlackholeConfig", {}, {}),
        (
            "xray.proxy.blackhole.Config",
            "BlackholeConfig",
            {"response": {"type": "xray.proxy.blackhole.HTTPResponse"}},
            {"response": {"type": "http"}},
        ),
        ("xray.proxy.loopback.Config", "LoopbackConfig", {"inbound_tag": "in"}, {"inboundTag": "in"}),
        ("xray.proxy.freedom.Config", "FreedomConfig", {"destination_override": {"server": {}}}, {"redirect": ""}),
    ],
)
def test_outbounds_without_a_server_are_read(
    name: str, message: str, fields: dict[str, object], settings: dict[str, object]
) -> None:
    found = read_added_outbound(add_outbound("x", typed(name, xray_messages()[message](**fields))))

    assert found["settings"] == settings


def test_a_socks_inbound_is_read_with_its_accounts_and_ports() -> None:
    messages = xray_messages()
    accounts = [messages["AccountEntry"](key="u", value="p")]
    config = messages["SocksServerConfig"](auth_type=1, accounts=accounts, udp_enabled=True, user_level=3)

    found = read_added_inbound(
        add_inbound(
            "in",
            typed("xray.proxy.socks.ServerConfig", config),
            ports=((1080, 1080), (2000, 2003)),
            sniffing_settings=messages["SniffingConfig"](enabled=True),
        )
    )

    assert found == {
        "tag": "in",
        "protocol": "socks",
        "settings": {"auth": "password", "udp": True, "accounts": [{"user": "u", "pass": "p"}], "userLevel": 3},
        "port": "1080,2000-2003",
        "listen": "127.0.0.1",
        "sniffing": {"enabled": True},
    }


def test_a_forward_is_read_with_its_target() -> None:
    messages = xray_messages()
    config = messages["DokodemoConfig"](address=messages["IPOrDomain"](domain="a.example"), port=80, networks=[2, 3])

    found = read_added_inbound(add_inbound("d", typed("xray.proxy.dokodemo.Config", config), ports=((80, 80),)))

    assert found["settings"] == {
        "address": "a.example",
        "port": 80,
        "followRedirect": False,
        "network": ["tcp", "udp"],
        "userLevel": 0,
    }


def test_tags_and_flags_are_read() -> None:
    assert read_removed(remove("s")) == "s"
    assert read_only_tags(b"\x08\x01")
    assert not read_only_tags(b"")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (b"\x0a\x03\x0a\x01\xff", "no UTF-8"),
        (b"\x0a\x0f\x12", "cut short"),
        (add_outbound("x", via={"ip": b"abc"}), "4 or 16 bytes"),
        (bytes(MAX_REQUEST + 1), "at most"),
    ],
)
def test_what_is_no_request_is_refused(request_: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        read_added_outbound(request_)


def test_outbounds_are_listed_as_protobuf_reads_them_and_without_passwords() -> None:
    messages = xray_messages()
    outbounds = [
        Sending("s", "socks", "10.0.0.1", 1080, "u", "10.0.0.7", "wg0"),
        Sending("v", "vless"),
        Sending("f", "freedom"),
    ]

    found = messages["ListOutboundsResponse"].FromString(outbounds_listed(outbounds)).outbounds

    assert [(each.tag, each.proxy_settings.type) for each in found] == [
        ("s", "xray.proxy.socks.ClientConfig"),
        ("v", "xray.proxy.vless.outbound.Config"),
        ("f", "xray.proxy.freedom.Config"),
    ]
    assert {each.sender_settings.type for each in found} == {"xray.app.proxyman.SenderConfig"}
    sender = messages["SenderConfig"].FromString(found[0].sender_settings.value)
    assert (sender.via.ip, sender.stream_settings.socket_settings.interface) == (bytes((10, 0, 0, 7)), "wg0")
    server = messages["ClientConfig"].FromString(found[0].proxy_settings.value).server
    assert (server.address.ip, server.port) == (bytes((10, 0, 0, 1)), 1080)
    assert messages["Account"].FromString(server.user.account.value) == messages["Account"](username="u")


def test_inbounds_are_listed_as_protobuf_reads_them() -> None:
    messages = xray_messages()
    inbounds = [
        Listening("in", "mixed", "127.0.0.1", (1080, 1081), asks_password=True, has_udp=True, level=2),
        Listening("d", "dokodemo-door", "::1", (80,), target=("a.example", 443)),
    ]

    found = messages["ListInboundsResponse"].FromString(inbounds_listed(inbounds)).inbounds

    receiver = messages["ReceiverConfig"].FromString(found[0].receiver_settings.value)
    assert [(each.From, each.To) for each in receiver.port_list.range] == [(1080, 1080), (1081, 1081)]
    assert receiver.listen.ip == bytes((127, 0, 0, 1))
    own = messages["SocksServerConfig"].FromString(found[0].proxy_settings.value)
    assert (own.auth_type, own.udp_enabled, own.user_level, len(own.accounts)) == (1, True, 2, 0)
    forward = messages["DokodemoConfig"].FromString(found[1].proxy_settings.value)
    assert (forward.address.domain, forward.port) == ("a.example", 443)


def test_tags_alone_are_listed_where_that_is_asked() -> None:
    found = inbounds_listed([Listening("in", "http", "127.0.0.1", (1,))], only_tags=True)

    assert found == xray_messages()["ListInboundsResponse"](inbounds=[{"tag": "in"}]).SerializeToString()
