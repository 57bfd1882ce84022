"""Roles together: a center in this process, and ordinary agents beside it as processes of their own, on a Unix socket.

Agents are spawned, never forked, and speak the ordinary frames: there is no second code path. A child that dies is started
again, later each time; when this process ends, in whatever way, its children end too. The agents are those of the document
in force: another document starts, stops and replaces them. The demo is one more child, which only tells what it does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from reachline.center import run as center
from reachline.center.reloading import Source
from reachline.doors.settings import AgentSettings, Document
from reachline.errors import ConfigError, Problem, ReachlineError
from reachline.model import Seconds

__all__ = ["Demo", "Setup", "Up", "up"]

log = logging.getLogger("reachline.up")

LOCAL: Final = "local"
"""The one agent of a document that names none."""
_TOKEN: Final = "REACHLINE_AGENT_TOKEN"  # noqa: S105  the variable's name
_MESH: Final = "127.0.0.1:0"
_FIRST_WAIT: Final[Seconds] = 0.5
"""Before a child that died is started again; doubles up to…"""
_LONGEST_WAIT: Final[Seconds] = 30.0
"""…this: a child that cannot live must not cost a core."""
_STARTING: Final[Seconds] = 30.0
"""A refusal (exit 2) this soon after our own start is a refusal to start. An interpreter on a busy machine takes ten."""
_STABLE: Final[Seconds] = 60.0
"""A child that lived this long starts with the first wait again."""
_POLITE: Final[Seconds] = 2.5
"""From SIGTERM to SIGKILL. An agent promises two seconds; the whole end stays below five."""
_DEMO_WITHIN: Final[Seconds] = 10.0
"""For the demo's world to stand. It takes half a second."""
_USAGE: Final = 2
_LONGEST_TEMPORARY: Final = 70
"""Bytes of a directory in which our socket's path still fits the kernel's 107."""
_MESSAGE: Final = 1 << 20
"""Bytes of one line a demo may say."""

_LEASH: Final = """\
import ctypes, os, runpy, signal, sys
parent, module = int(sys.argv.pop(1)), sys.argv.pop(1)
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != parent:
    sys.exit(0)
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""Asks the kernel for SIGTERM when our parent dies (PR_SET_PDEATHSIG, 1), then is the module: `up` may be killed with
SIGKILL and yet leaves nothing running. In the child rather than between fork and exec, where Python must not run."""


class Up(NamedTuple):
    """Where everything is reached once it stands."""

    http: str
    grpc: tuple[str, ...]
    agents: tuple[str, ...]
    lines: int
    journal: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """A world to show it in: `module` is run as `-m MODULE DOCUMENT --center URL [--story FILE]`."""

    module: str
    story: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a start adds to the document."""

    source: Path
    text: str
    """The document's file and what stood in it: a change is adopted while we run."""
    read: Callable[[str], Document] | None = None
    """What reads its next content, where it is no document of our own."""
    console: Path | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    insecure: bool = False
    demo: Demo | None = None
    log_level: str = "warning"
    log_format: str = "text"
    """Of the agents; the center logs where and as this process does."""


class _Child(NamedTuple):
    """One process to keep."""

    name: str
    module: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str] = {}
    heard: Callable[[Mapping[str, Any]], None] | None = None
    """What it says on standard output, as JSON objects; None: its output is ours."""


class _House(NamedTuple):
    """What everybody under one roof shares."""

    document: Document
    setup: Setup
    socket: str
    told: dict[str, object]
    """The demo's newest words; written as they come, read by the page."""
    ready: Callable[[Up], None]
    say: Callable[[str], None]
    documents: asyncio.Queue[Document]
    """Those that came into force after the start."""


async def up(
    document: Document, setup: Setup, *, stop: asyncio.Event, ready: Callable[[Up], None], say: Callable[[str], None]
) -> None:
    """Serves until `stop` is set; ConfigError where an address, the journal or the demo cannot be had.

    `ready` is called once everything answers, `say` with lines for a terminal. Nothing is left running afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="reachline-", dir=_temporary()) as private:
        prepared = _prepared(document, setup, private)
        house = _House(prepared, setup, f"unix:{private}/center.sock", {}, ready, say, asyncio.Queue())
        started: asyncio.Future[center.Started] = asyncio.get_running_loop().create_future()
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            serving = center.run(prepared, _options(house), stop=over, ready=started.set_result)
            tasks.create_task(serving, name="center")
            family = tasks.create_task(_family(house, started), name="children")
            await stop.wait()
            # Children first: an agent that still runs would report that it lost its center.
            family.cancel()
            await asyncio.wait({family})
            over.set()


def _options(house: _House) -> center.Options:
    setup = house.setup
    return center.Options(
        source=Source(setup.source, setup.text, setup.read),
        console=setup.console,
        also=(house.socket,),
        insecure=setup.insecure,
        environ=setup.environ,
        pages={"demo": lambda: house.told} if setup.demo else {},
        adopted=house.documents.put_nowait,
    )


def _temporary() -> str | None:
    """Where the private directory goes; None: where the system puts such things."""
    return None if len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_TEMPORARY else "/tmp"  # noqa: S108


def _prepared(document: Document, setup: Setup, private: str) -> Document:
    """A demo starts with an empty journal that goes with it, unless the document names one: its story begins in health."""
    if setup.demo is None or "journal" in document.center.model_fields_set:
        return document
    return document.model_copy(update={"center": document.center.model_copy(update={"journal": f"{private}/journal"})})


async def _family(house: _House, started: asyncio.Future[center.Started]) -> None:
    """The children, from the center's start to our cancellation."""
    reached, document = await started, house.document
    async with asyncio.TaskGroup() as tasks:
        if house.setup.demo is not None:
            standing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            demo = _demo(house, house.setup.demo, reached.http, standing)
            tasks.create_task(_keep(demo, house.say, may_refuse=True), name="demo")
            await _stands(standing)
        tasks.create_task(_agents(house), name="agents")
        lines = sum(len(cluster.lines) for cluster in document.clusters.values())
        names = tuple(agent.name for agent in _named(house, document))
        house.ready(Up(reached.http, reached.grpc, names, lines, document.center.journal))


async def _stands(demo: asyncio.Future[None]) -> None:
    try:
        async with asyncio.timeout(_DEMO_WITHIN):
            await demo
    except TimeoutError as error:
        raise ReachlineError(f"the demo's world did not stand within {_DEMO_WITHIN:g} s") from error


async def _agents(house: _House) -> None:
    """Those that the document in force names are kept, and no others, until we are cancelled."""
    running: dict[str, tuple[_Child, asyncio.Task[None]]] = {}
    async with asyncio.TaskGroup() as tasks:
        document, is_first = house.document, True
        while True:
            wanted = {child.name: child for child in _named(house, document)}
            ending = {name: task for name, (child, task) in running.items() if wanted.get(name) != child}
            for name, task in ending.items():
                house.say(f"{name} is {'started anew: the document changed' if name in wanted else 'no longer named'}")
                task.cancel()
                del running[name]
            for name in [name for name in wanted if name not in running]:
                keeping = _keep(wanted[name], house.say, may_refuse=is_first, after=ending.get(name))
                running[name] = wanted[name], tasks.create_task(keeping, name=name)
            document, is_first = await house.documents.get(), False


def _named(house: _House, document: Document) -> tuple[_Child, ...]:
    """The document's agents, or one."""
    settings = document.agents or {LOCAL: AgentSettings()}
    return tuple(_agent(name, agent, house) for name, agent in settings.items())


def _agent(name: str, settings: AgentSettings, house: _House) -> _Child:
    place = settings.locality
    arguments = ["agent", "--id", name, "--center", house.socket, "--log-level", house.setup.log_level]
    arguments += ["--log", house.setup.log_format]
    arguments += ["--zone", place.zone] if place.zone else []
    arguments += ["--region", place.region] if place.region else []
    # One machine: they answer each other on loopback, where nobody else asks.
    arguments += [] if settings.mesh else ["--mesh", _MESH]
    for source in settings.sources:
        arguments += ["--source", source]
    token = {_TOKEN: settings.token.get_secret_value()} if settings.token else {}
    return _Child(f"agent {name}", "reachline", tuple(arguments), token)


def _demo(house: _House, demo: Demo, url: str, standing: asyncio.Future[None]) -> _Child:
    """The demo's world, and what is done with its words."""

    def heard(message: Mapping[str, Any]) -> None:
        match message:
            case {"ready": True} if not standing.done():
                standing.set_result(None)
            case {"print": str(text)}:
                house.say(text)
            case {"told": dict(document)}:
                house.told.clear()
                house.told.update(document)
            case {"refused": list(problems)}:
                raise ConfigError(*(Problem(**problem) for problem in problems))
            case _:
                log.debug("demo_message_ignored", extra={"keys": sorted(message)})

    story = ("--story", str(demo.story)) if demo.story else ()
    return _Child("demo", demo.module, (str(house.setup.source), "--center", url, *story), heard=heard)


async def _keep(
    child: _Child, say: Callable[[str], None], *, may_refuse: bool, after: asyncio.Task[None] | None = None
) -> None:
    """Run a child, again and again, until cancelled; the first time once the task `after` has ended.

    `may_refuse`: it belongs to our own start, so its refusal to start (exit 2) is ours. Later on it is only an end.
    """
    if after is not None:
        await asyncio.wait({after})
    clock, wait = asyncio.get_running_loop().time, _FIRST_WAIT
    while True:
        began = clock()
        code = await _run(child)
        lived = clock() - began
        if may_refuse and code == _USAGE and lived < _STARTING:
            raise ReachlineError(f"{child.name} refused to start; its reason stands above")
        may_refuse = False
        if lived >= _STABLE:
            wait = _FIRST_WAIT
        log.warning("child_ended", extra={"child": child.name, "code": code, "restart_in": wait})
        say(f"{child.name} ended ({_how(code)}); it is started again in {wait:g} s")
        await asyncio.sleep(wait)
        wait = min(wait * 2, _LONGEST_WAIT)


def _how(code: int) -> str:
    name = next((each.name for each in signal.Signals if each == -code), str(-code))
    return f"signal {name}" if code < 0 else f"exit {code}"


async def _run(child: _Child) -> int:
    """One life of a child; its exit code. Cancelled: the child and all of its own are ended first."""
    process = await asyncio.create_subprocess_exec(
        *_command(child),
        env={**os.environ, **child.environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=None if child.heard is None else asyncio.subprocess.PIPE,
        limit=_MESSAGE,
        # A group of its own: Ctrl-C reaches this process alone, which then ends everything in order.
        process_group=0,
    )
    try:
        if child.heard is not None:
            await _listen(process, child.heard)
        return await process.wait()
    finally:
        await _surely(_end(process))


def _command(child: _Child) -> Sequence[str]:
    if sys.platform != "linux":
        return (sys.executable, "-m", child.module, *child.arguments)
    return (sys.executable, "-c", _LEASH, str(os.getpid()), child.module, *child.arguments)


async def _listen(process: asyncio.subprocess.Process, heard: Callable[[Mapping[str, Any]], None]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        try:
            message = json.loads(line)
        except ValueError:
            log.warning("child_unintelligible", extra={"said": line[:200].decode(errors="replace")})
            continue
        if isinstance(message, dict):
            heard(message)


async def _surely(work: Coroutine[None, None, None]) -> None:
    """Waits until it is done, however often we are cancelled meanwhile; that counts afterwards."""
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


async def _end(process: asyncio.subprocess.Process) -> None:
    """Whatever is left of a child's group is gone afterwards."""
    if process.returncode is None:
        _signal(process.pid, signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _POLITE)
    _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
