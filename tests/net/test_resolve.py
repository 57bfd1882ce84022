from __future__ import annotations

import asyncio
import socket
import threading
import time
from types import SimpleNamespace

from reachline.net.resolve import STALE, Answer, Resolver, nameserver
from reachline.testing.wait import until


class Names:
    """A lookup that says what the test wants, and counts."""

    def __init__(self, *words) -> None:
        self.words = list(words)
        self.asked: list[tuple[str, int]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, host: str, family: int) -> tuple[str, ...]:
        self.asked.append((host, family))
        assert self.gate.wait(10)
        word = self.words.pop(0) if len(self.words) > 1 else self.words[0]
        if isinstance(word, Exception):
            raise word
        assert isinstance(word, tuple)
        return word


def at_hand(resolver, host="a.test", family=0):
    answer = resolver.cached(host, family)
    return answer.addresses if answer else None


async def ask(resolver, host="a.test", family=0):
    found = asyncio.get_running_loop().create_future()
    resolver.ask(host, family, found.set_result)
    return await asyncio.wait_for(found, 30)


def test_a_name_is_looked_up_once_for_all_who_ask_meanwhile():
    async def main():
        names = Names(("10.0.0.1",))
        names.gate.clear()
        resolver = Resolver(lookup=names)
        answers: list[Answer] = []
        for _ in range(50):
            resolver.ask("a.test", 4, answers.append)
        names.gate.set()
        await until(lambda: len(answers) == 50)

        assert names.asked == [("a.test", 4)]
        assert {answer.addresses for answer in answers} == {("10.0.0.1",)}
        assert at_hand(resolver, family=4) == ("10.0.0.1",)
        assert at_hand(resolver, family=6) is None
        resolver.close()

    asyncio.run(main())


def test_an_answer_is_kept_and_asked_again_after_its_time():
    async def main():
        names = Names(("10.0.0.1",), ("10.0.0.2",))
        resolver = Resolver(lookup=names, keep=0.0)
        await ask(resolver)

        assert at_hand(resolver) == ("10.0.0.1",)
        await until(lambda: at_hand(resolver) == ("10.0.0.2",))
        resolver.close()

    asyncio.run(main())


def test_the_address_in_use_stays_first_while_it_is_one_of_the_answers():
    async def main():
        names = Names(("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1"), ("10.0.0.3", "10.0.0.2"))
        resolver = Resolver(lookup=names, keep=0.0)

        assert (await ask(resolver)).addresses[0] == "10.0.0.1"
        assert (await ask(resolver)).addresses == ("10.0.0.1", "10.0.0.2")
        assert (await ask(resolver)).addresses[0] == "10.0.0.3"
        resolver.close()

    asyncio.run(main())


def test_a_name_that_does_not_resolve_is_an_answer_with_its_reason():
    async def main():
        resolver = Resolver(lookup=Names(socket.gaierror(socket.EAI_NONAME, "x")))

        answer = await ask(resolver)

        assert answer.addresses == ()
        assert answer.error == "name does not resolve"
        resolver.close()

    asyncio.run(main())


def test_while_name_servers_are_silent_the_last_addresses_serve():
    async def main():
        silent = socket.gaierror(socket.EAI_AGAIN, "x")
        resolver = Resolver(lookup=Names(("10.0.0.1",), silent, socket.gaierror(socket.EAI_NONAME, "x")))
        await ask(resolver)

        assert (await ask(resolver)).addresses == ("10.0.0.1",)
        assert (await ask(resolver)).error == "name does not resolve"
        resolver.close()

    asyncio.run(main())


def test_no_more_lookups_than_the_limit_run_at_once():
    async def main():
        names = Names(("10.0.0.1",))
        names.gate.clear()
        resolver = Resolver(lookup=names, limit=2)
        answers: list[Answer] = []
        for number in range(6):
            resolver.ask(f"{number}.test", 0, answers.append)
        await until(lambda: len(names.asked) == 2)
        names.gate.set()
        await until(lambda: len(answers) == 6)

        assert len(names.asked) == 6
        resolver.close()

    asyncio.run(main())


def test_names_that_failed_wait_for_all_others_and_have_half_of_the_lookups():
    """A server that takes its time to say no: a good name is looked up beside a storm of such names, not behind it."""

    async def main():
        names = Names(socket.gaierror(socket.EAI_NONAME, "unknown"))
        resolver = Resolver(lookup=names, limit=4, keep_failure=0.0)
        for number in range(20):
            await ask(resolver, f"{number}.test")
        names.asked.clear()
        names.gate.clear()
        answers: list[Answer] = []
        for number in range(20):
            resolver.ask(f"{number}.test", 0, answers.append)
        await until(lambda: len(names.asked) == 2, what="half of the lookups")
        resolver.ask("good.test", 0, answers.append)
        await until(lambda: len(names.asked) == 3, what="the good name")
        assert names.asked[-1] == ("good.test", 0)
        names.gate.set()
        await until(lambda: len(answers) == 21, what="all of them")
        resolver.close()

    asyncio.run(main())


def test_names_that_nobody_probes_any_more_are_forgotten(monkeypatch):
    async def main():
        resolver = Resolver(lookup=Names(("10.0.0.1",)), keep=0.0)
        for number in range(50):
            await ask(resolver, f"{number}.test")
        later = time.monotonic() + STALE + 1
        monkeypatch.setattr("reachline.net.resolve.time", SimpleNamespace(monotonic=lambda: later))
        await ask(resolver, "now.test")

        assert at_hand(resolver, "now.test") == ("10.0.0.1",)
        assert {at_hand(resolver, f"{number}.test") for number in range(50)} == {None}
        resolver.close()

    asyncio.run(main())


def test_after_close_nothing_is_called_and_nothing_is_asked():
    async def main():
        names = Names(("10.0.0.1",))
        names.gate.clear()
        resolver = Resolver(lookup=names)
        answers: list[Answer] = []
        resolver.ask("a.test", 0, answers.append)
        await until(lambda: names.asked)
        resolver.close()
        names.gate.set()
        resolver.ask("b.test", 0, answers.append)
        await until(lambda: not any(thread.name.startswith("resolve") for thread in threading.enumerate()))
        await asyncio.sleep(0)

        assert answers == []
        assert len(names.asked) == 1

    asyncio.run(main())


def test_the_systems_resolver_honours_the_family():
    async def main():
        resolver = Resolver()

        four, six = await ask(resolver, "127.0.0.1", 4), await ask(resolver, "127.0.0.1", 6)

        assert four.addresses == ("127.0.0.1",)
        assert six.addresses == ()
        assert six.error
        resolver.close()

    asyncio.run(main())


def test_the_machines_name_server_is_the_first_one_configured(tmp_path):
    file = tmp_path / "resolv.conf"
    file.write_text("# comment\nsearch x\nnameserver 10.0.0.53\nnameserver 10.0.0.54\n")

    assert nameserver(file) == "10.0.0.53"
    assert nameserver(tmp_path / "none") == ""
