"""strict_dns and logical_dns against name servers that change their minds: one of ours, and dnsmasq."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from contextlib import aclosing
from pathlib import Path
from random import Random

import pytest
from tests.descriptors import open_files
from tests.discovery.watch import LONGEST, Watch

from reachline.discovery.logical_dns import LOGICAL, LogicalDns
from reachline.discovery.naming import DnsSettings, Family
from reachline.discovery.strict_dns import StrictDns
from reachline.errors import ConfigError
from reachline.members import Address, Member
from reachline.net.names import Names
from reachline.testing import parts
from reachline.testing.nameserver import Nameserver, Record, nameserver
from reachline.testing.wait import until

QUICK: dict = {
    "refresh": 0.02, "ttl_floor": 0.02, "jitter": 0.0, "failure_base": 0.02, "failure_max": 0.02, "empty_for": 0.0,
    "family": Family.V4, "respect_ttl": False,
}  # fmt: skip


def target(host, port=80, **fields):
    return Member(address=Address(host, port), **fields)


def asking(server, **options):
    none = Path(os.devnull)
    settings: dict = {"resolv": none, "hosts": none, "wait": 2 * LONGEST, "tries": 1} | options
    return Names(servers=[server.address], **settings)


@contextlib.asynccontextmanager
async def strict(server, *targets, names=None, **fields):
    settings = DnsSettings(**QUICK | fields)
    discovery = StrictDns(targets or (target("a.test"),), settings, rng=Random(1), names=names or asking(server))
    async with aclosing(discovery.watch()) as updates:
        yield Watch(updates, discovery.names)


def test_every_address_of_every_name_is_an_endpoint_that_inherits_its_targets_place() -> None:
    async def main():
        async with nameserver() as server:
            server.set("a.test", "10.0.0.2", "10.0.0.1")
            server.set("b.test", "10.0.1.1")
            async with strict(
                server, target("a.test", weight=3), target("b.test", 81, priority=1, hostname="tls.b")
            ) as watch:
                update = await watch.next()

        assert [(str(each.address), each.hostname, each.weight, each.priority) for each in update.added] == [
            ("10.0.0.1:80", "a.test", 3, 0),
            ("10.0.0.2:80", "a.test", 3, 0),
            ("10.0.1.1:81", "tls.b", 1, 1),
        ]
        assert update.trouble == ""

    asyncio.run(main())


def test_answers_are_compared_by_address_and_rotation_is_no_news() -> None:
    async def main():
        async with nameserver() as server, strict(server) as watch:
            server.set("a.test", "10.0.0.1", "10.0.0.2")
            first = await watch.next()
            server.set("a.test", "10.0.0.2", "10.0.0.1")
            seen = server.asked["a.test/A"]
            waiting = asyncio.ensure_future(watch.next())
            await until(lambda: server.asked["a.test/A"] > seen + 2)
            assert not waiting.done()
            server.set("a.test", "10.0.0.2", "10.0.0.3")
            second = await waiting

        assert [str(each.address) for each in second.added] == ["10.0.0.3:80"]
        assert [str(each.address) for each in second.removed] == ["10.0.0.1:80"]
        assert second.membership.members[0] is first.membership.members[1]

    asyncio.run(main())


def test_a_name_server_that_fails_takes_no_endpoint_and_one_that_says_nothing_is_there_takes_all() -> None:
    async def main():
        async with nameserver() as server, strict(server) as watch:
            server.set("a.test", "10.0.0.1", ttl=0)
            assert await watch.addresses() == ["10.0.0.1:80"]

            server.codes["a.test"] = "SERVFAIL"
            assert await watch.addresses() == ["10.0.0.1:80"]
            assert watch.last.trouble == "a.test: the name server says SERVFAIL: its last addresses serve on"
            assert not watch.last.is_change

            server.codes["a.test"] = "NXDOMAIN"
            assert await watch.addresses() == []
            assert watch.last.trouble == "a.test: name does not exist"

            server.set("a.test", "10.0.0.2")
            assert await watch.addresses() == ["10.0.0.2:80"]
            assert watch.last.trouble == ""

            server.set("a.test", "fd00::1")  # the name is there, and has no A
            assert await watch.addresses() == []
            assert watch.last.trouble == "a.test: name has no address"

    asyncio.run(main())


def test_endpoints_outlive_an_empty_answer_for_as_long_as_they_are_told_to() -> None:
    async def main():
        async with nameserver() as server, strict(server, empty_for=1.0) as watch:
            server.set("a.test", "10.0.0.1")
            await watch.next()
            server.codes["a.test"] = "NXDOMAIN"

            assert await watch.addresses() == ["10.0.0.1:80"]
            assert watch.last.trouble == "a.test: name does not exist: its last addresses serve on"
            assert await watch.addresses() == []

    asyncio.run(main())


def test_endpoints_that_nobody_confirms_go_once_they_are_stale() -> None:
    async def main():
        async with nameserver() as server, strict(server, stale_after=3.0) as watch:
            server.set("a.test", "10.0.0.1")
            await watch.next()
            server.codes["a.test"] = "SERVFAIL"

            assert await watch.addresses() == ["10.0.0.1:80"]
            assert await watch.addresses() == []

    asyncio.run(main())


def test_a_name_that_is_not_answered_holds_the_first_update_no_longer_than_it_may() -> None:
    async def main():
        async with nameserver() as server:
            server.set("a.test", "10.0.0.1")
            server.codes["b.test"] = "MUTE"
            async with strict(server, target("a.test"), target("b.test"), initial_wait=8.0) as watch:
                assert await watch.addresses() == ["10.0.0.1:80"]
                assert watch.last.trouble == "b.test: not answered yet"
                assert [(each.host, each.is_ready) for each in watch.names()] == [("a.test", True), ("b.test", False)]

                server.set("b.test", "10.0.0.2")  # heard when it is asked again
            async with strict(server, target("a.test"), target("b.test"), initial_wait=LONGEST) as watch:
                assert await watch.addresses() == ["10.0.0.1:80", "10.0.0.2:80"]

    asyncio.run(main())


def test_with_ready_any_the_first_answer_is_enough() -> None:
    async def main():
        async with nameserver() as server:
            server.set("a.test", "10.0.0.1")
            server.codes["b.test"] = "MUTE"
            targets = (target("a.test"), target("b.test"))
            async with strict(server, *targets, initial_wait=2 * LONGEST, ready_any=True) as watch:
                assert await watch.addresses() == ["10.0.0.1:80"]

    asyncio.run(main())


def test_one_name_that_hangs_does_not_hold_the_others() -> None:
    async def main():
        async with nameserver() as server:
            server.set("a.test", "10.0.0.1")
            server.codes["b.test"] = "MUTE"
            async with strict(server, target("a.test"), target("b.test"), ready_any=True) as watch:
                await watch.next()
                server.set("a.test", "10.0.0.9")

                assert await watch.addresses() == ["10.0.0.9:80"]

    asyncio.run(main())


def test_an_address_that_two_names_give_is_one_endpoint_and_is_reported() -> None:
    async def main():
        async with nameserver() as server:
            server.set("a.test", "10.0.0.1")
            server.set("b.test", "10.0.0.1")
            async with strict(server, target("a.test"), target("b.test")) as watch:
                assert await watch.addresses() == ["10.0.0.1:80"]
                assert watch.last.notices == ("10.0.0.1:80 is given by a.test and by b.test: the first one counts",)

    asyncio.run(main())


def test_an_answer_too_long_for_a_datagram_is_fetched_over_tcp() -> None:
    async def main():
        async with nameserver() as server:
            server.truncates = True
            server.set("a.test", *(f"10.0.{each}.1" for each in range(200)))
            async with strict(server) as watch:
                assert len(await watch.addresses()) == 200
                assert server.asked["tcp:a.test/A"]

    asyncio.run(main())


def test_a_machine_without_a_descriptor_for_tcp_fails_the_question_and_asks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = socket.socket

    def without_tcp(family=-1, kind=-1, *args, **more):
        if kind & socket.SOCK_STREAM and not kind & socket.SOCK_DGRAM and family == socket.AF_INET:
            raise OSError(errno.EMFILE, "Too many open files")
        return made(family, kind, *args, **more)

    async def main():
        async with nameserver() as server:
            server.truncates = True
            server.set("a.test", "10.0.0.1")
            async with strict(server) as watch:
                monkeypatch.setattr("reachline.net.asking.socket.socket", without_tcp)
                assert await watch.addresses() == []
                assert "Too many open files" in watch.last.trouble

                monkeypatch.undo()
                assert await watch.addresses() == ["10.0.0.1:80"]

    asyncio.run(main())


def test_a_cname_chain_is_followed_and_its_smallest_ttl_says_when_to_ask_again() -> None:
    async def main():
        async with nameserver() as server:
            server.records = [
                Record("a.test", "b.test", 600),
                Record("b.test", "c.test", 77),
                Record("c.test", "10.0.0.1", 900),
            ]
            async with strict(server, respect_ttl=True) as watch:
                assert await watch.addresses() == ["10.0.0.1:80"]
                (name,) = watch.names()
                left = name.due - asyncio.get_running_loop().time()

        assert 77 - LONGEST < left <= 77

    asyncio.run(main())


def test_literals_and_the_hosts_file_need_no_server(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("10.0.0.7 a.test\nfd00::7 a.test\n")

    async def main():
        async with nameserver() as server:
            names = asking(server, hosts=tmp_path / "hosts")
            targets = (target("10.0.0.1"), target("a.test"), target("fd00::1"))
            async with strict(server, *targets, names=names, family=Family.BOTH) as watch:
                assert await watch.addresses() == ["10.0.0.1:80", "10.0.0.7:80", "[fd00::7]:80", "[fd00::1]:80"]
                assert not server.asked

    asyncio.run(main())


def test_search_domains_are_tried_in_order_past_those_that_fail() -> None:
    async def main():
        async with nameserver() as server:
            server.set("pay.shop.svc", "10.0.0.1")
            server.codes["pay.wrong.svc"] = "SERVFAIL"
            async with strict(server, target("pay"), names=asking(server, search=["wrong.svc", "shop.svc"])) as watch:
                assert await watch.addresses() == ["10.0.0.1:80"]
                assert list(server.asked) == ["pay.wrong.svc/A", "pay.shop.svc/A"]

    asyncio.run(main())


def test_a_search_domain_that_makes_a_name_too_long_is_passed_over() -> None:
    async def main():
        async with nameserver() as server:
            server.set("pay", "10.0.0.1")
            names = asking(server, search=[".".join(["x" * 60] * 5)])
            async with strict(server, target("pay"), names=names) as watch:
                assert await watch.addresses() == ["10.0.0.1:80"]

    asyncio.run(main())


def test_the_next_server_is_asked_where_one_fails() -> None:
    async def main():
        async with nameserver() as sick, nameserver() as well:
            sick.codes["a.test"] = "SERVFAIL"
            well.set("a.test", "10.0.0.1")
            names = Names(
                servers=[sick.address, Address("127.0.0.1", parts.free_port(socket.SOCK_DGRAM)), well.address],
                wait=5,
                tries=1,
            )
            async with strict(well, names=names) as watch:
                assert await watch.addresses() == ["10.0.0.1:80"]
                assert sick.asked["a.test/A"] == 1

    asyncio.run(main())


def test_a_name_that_cannot_be_one_is_missing_and_said() -> None:
    async def main():
        async with nameserver() as server, strict(server, target("a..test")) as watch:
            assert await watch.addresses() == []
            assert watch.last.trouble.startswith("a..test: label '' of")

    asyncio.run(main())


def test_leaving_a_watch_closes_every_socket() -> None:
    async def main():
        async with nameserver() as server:
            server.codes["a.test"] = "MUTE"
            before = open_files()
            async with strict(server, initial_wait=0.05) as watch:
                await watch.next()
                assert len(open_files() - before) == 1

            assert not open_files() - before

    asyncio.run(main())


@pytest.mark.parametrize("ready_any", [True, False])
def test_without_names_the_first_update_comes_at_once_and_says_so(ready_any: bool) -> None:
    async def main():
        settings = DnsSettings(ready_any=ready_any, initial_wait=2 * LONGEST)
        async with aclosing(StrictDns([], settings, rng=Random(1)).watch()) as updates:
            update = await Watch(updates).next()

        assert (update.membership.members, update.trouble) == ((), "no names are written down")

    asyncio.run(main())


def test_targets_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"strict_dns: endpoints\[1\]\.weight: must be a whole number"):
        StrictDns([target("a.test"), target("a.test", weight=0)], rng=Random(1))
    with pytest.raises(ConfigError, match=r"logical_dns: endpoints\[0\]\.address: must be a name"):
        LogicalDns(target(""), rng=Random(1))


def test_logical_dns_takes_the_first_address_and_lets_old_connections_be() -> None:
    fields: dict = QUICK | {"empty_for": LOGICAL.empty_for}
    settings = DnsSettings(**fields)

    async def main():
        async with nameserver() as server:
            server.set("a.test", "10.0.0.2", "10.0.0.1")
            discovery = LogicalDns(target("a.test"), settings, rng=Random(1), names=asking(server))
            async with aclosing(discovery.watch()) as updates:
                watch = Watch(updates)
                assert await watch.addresses() == ["10.0.0.2:80"]
                assert watch.last.membership.lingers

                server.codes["a.test"] = "NXDOMAIN"
                assert await watch.addresses() == ["10.0.0.2:80"]

                server.set("a.test", "10.0.0.1", "10.0.0.2")
                assert await watch.addresses() == ["10.0.0.1:80"]
                assert [str(each.address) for each in watch.last.removed] == ["10.0.0.2:80"]
                assert discovery.names()[0].addresses == ("10.0.0.1", "10.0.0.2")

    asyncio.run(main())


@contextlib.contextmanager
def dnsmasq(directory: Path, port: int, *options: str):
    """On `port`, with these options and nothing else."""
    alone = (
        "-k",
        "-z",
        "-R",
        "-h",
        "-C",
        "/dev/null",
        "-x",
        str(directory / "pid"),
        "-p",
        str(port),
        "-a",
        "127.0.0.1",
    )
    user = ("--user=root",) if os.geteuid() == 0 else ()
    with parts.served((parts.require("dnsmasq"), *alone, *user, *options), port=port, log=directory / "log"):
        yield


@pytest.mark.real
def test_dnsmasq_that_is_replaced_in_mid_run_is_followed(tmp_path: Path) -> None:
    port = parts.free_port()

    async def main():
        names = Names(servers=[Address("127.0.0.1", port)], wait=2.0, tries=1)
        async with strict(Nameserver(Address("127.0.0.1", port)), names=names, respect_ttl=True) as watch:
            with dnsmasq(tmp_path, port, "--host-record=a.test,10.0.0.1", "--host-record=b.test,10.0.0.2"):
                assert await watch.addresses() == ["10.0.0.1:80"]  # dnsmasq's own records have TTL 0
            assert await watch.addresses() == ["10.0.0.1:80"]  # nobody answers
            assert watch.last.trouble.endswith("its last addresses serve on")
            with dnsmasq(tmp_path, port, "--cname=a.test,b.test,1", "--host-record=b.test,10.0.0.2"):
                assert await watch.addresses() == ["10.0.0.2:80"]
            with dnsmasq(tmp_path, port, "--local=/test/"):
                while await watch.addresses():
                    assert watch.last.trouble
                assert watch.last.trouble == "a.test: name does not exist"
            with dnsmasq(tmp_path, port, "--local=/test/", "--host-record=a.test,fd00::1"):
                while watch.last.trouble != "a.test: name has no address":
                    assert await watch.addresses() == []

    asyncio.run(main())
