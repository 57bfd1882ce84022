"""What is to be done in a forked child is done once, whoever forked it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from reachline.net.forks import Forks


def in_child(act: Callable[[], int]) -> int:
    """What `act` comes to in a forked child, 0 to 255."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            code = act()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Any:
    """uWSGI's module, as its master has it."""
    made = ModuleType("uwsgi")
    monkeypatch.setitem(sys.modules, "uwsgi", made)
    monkeypatch.setitem(sys.modules, "uwsgidecorators", None)
    return made


def test_each_child_is_told_once_by_whichever_hook_comes_first() -> None:
    told: list[str] = []
    forks = Forks()
    forks.add(lambda: told.append("a"))
    forks.add(lambda: told.append("b"))

    def child() -> int:
        forks.run()
        forks.run()
        return "".join(told) == "ab" and in_child(grandchild) == 0

    def grandchild() -> int:
        forks.run()
        return "".join(told) != "abab"

    forks.run()
    assert told == []
    assert in_child(child) == 1


def test_uwsgi_is_told_to_tell_and_who_was_told_before_still_is(server: Any) -> None:
    told: list[str] = []
    server.post_fork_hook = lambda: told.append("before")
    forks = Forks()
    forks.add(lambda: told.append("ours"))

    forks.tell_server()
    forks.tell_server()

    def child() -> int:
        server.post_fork_hook()
        return told == ["before", "ours"]

    assert in_child(child) == 1


def test_where_uwsgis_decorators_are_there_the_hook_stays_theirs(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    decorators: Any = ModuleType("uwsgidecorators")
    decorators.postfork_chain = []
    monkeypatch.setitem(sys.modules, "uwsgidecorators", decorators)
    forks = Forks()

    forks.tell_server()
    forks.tell_server()

    assert decorators.postfork_chain == [forks.run]
    assert not hasattr(server, "post_fork_hook")


def test_without_uwsgi_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "uwsgi", raising=False)

    Forks().tell_server()

    assert "uwsgidecorators" not in sys.modules
