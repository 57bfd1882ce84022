"""The demo's world: real services behind fault proxies, callers, and a story that turns one line's knobs.

A process of its own beside an ordinary center and ordinary agents, which know nothing of it: it reads the same document for
the lines' addresses, and the center's public API to put words to what is decided. It says on standard output, as JSON lines,
when it is ready, what a terminal should show (`print`), and what the console's banner shows (`told`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import textwrap
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from reachline.doors import reach
from reachline.errors import ConfigError, Problem
from reachline.model import Line, Seconds
from reachline.net import reload
from reachline.testing.faults import FaultProxy, Knobs
from reachline.testing.services import service
from reachline.testing.story import Scene, Story
from reachline.testing.story import read as read_story

__all__ = ["STORY", "Narrator", "main", "state_of"]

STORY: Final = Path(__file__).with_name("story.yaml")
_LOOK: Final[Seconds] = 0.5
"""How often the center is asked where the line stands: each state lasts longer than this."""
_ASK: Final[Seconds] = 2.0
_STEP: Final = 8
"""Points by which a weight must move before the terminal is told: each line there is a step a person can see."""
_END: Final[Seconds] = 2.0
_INDENT: Final = " " * 8

Say = Callable[[Mapping[str, object]], None]


def state_of(row: Mapping[str, Any]) -> str:
    """A line's state as a story knows it."""
    if row["breaker"] != "closed":
        return str(row["breaker"])
    return "degraded" if row["health"] == "degraded" else "closed"


@dataclass(slots=True)
class Narrator:
    """What is told now, from the script's turns and from what the center publishes. Pure: time and rows are arguments."""

    story: Story
    line: str
    round: int = 1
    elapsed: Seconds = 0.0
    phase: str = ""
    title: str = ""
    text: str = ""
    calls: Mapping[str, object] = field(default_factory=dict)
    _state: str = "closed"
    _weight: int | None = None
    _row: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True while the line stands as it stood before the story."""
        return self._state == "closed"

    def turned(self, scene: Scene) -> str:
        """The script turned its knobs; the words for the terminal."""
        return self._tell(scene.phase, scene.title, scene.say)

    def saw(self, row: Mapping[str, Any]) -> str:
        """The center's newest word on the line; words for the terminal, or empty when there is no news."""
        before, self._row = self._state, row
        self._state = state_of(row)
        if self._state != before and (sight := self.story.seen.get(self._state)):
            self._weight = row["weight"]
            return self._tell(sight.phase, sight.title, sight.say)
        if self._weight is None:
            self._weight = row["weight"]
        if abs(row["weight"] - self._weight) < _STEP:
            return ""
        told = f"{_INDENT}{self.line}: weight {self._weight} → {row['weight']}"
        self._weight = row["weight"]
        return told

    def told(self) -> dict[str, object]:
        """The banner's document."""
        return {
            "title": self.title,
            "text": self.text,
            "phase": self.phase,
            "elapsed": round(self.elapsed),
            "next": self._next(),
            "steps": [{"phase": phase, "title": title} for phase, title in self.story.phases.items()],
            "calls": self.calls,
            "round": self.round,
        }

    def _next(self) -> str:
        later = next((scene for scene in self.story.script if scene.at > self.elapsed), None)
        left = (later.at if later else self.story.length) - self.elapsed
        if left <= 0:
            return "the story begins again once the line is healthy"
        return f"{self._fill(later.title) if later else 'the story begins again'} in {round(left)} s"

    def _tell(self, phase: str, title: str, say: str) -> str:
        self.phase, self.title, self.text = phase, self._fill(title), self._fill(say)
        minutes, seconds = divmod(round(self.elapsed), 60)
        return f"  {minutes}:{seconds:02}  {self.title}\n{_wrapped(self.text)}"

    def _fill(self, text: str) -> str:
        facts = {
            "weight": self._row.get("weight", "?"),
            "base": self._row.get("base", "?"),
            "reason": self._row.get("reason", ""),
        }
        return text.format(line=self.line, name=self.line.rpartition("/")[2], **facts)


def _wrapped(text: str) -> str:
    """Indented under the time of day; 88 columns are readable on every terminal."""
    return textwrap.fill(text, 88, initial_indent=_INDENT, subsequent_indent=_INDENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    """What a demo is played on."""

    story: Story
    lines: tuple[Line, ...]
    center: str
    rng: Random
    say: Say

    @property
    def line(self) -> Line:
        """The line the story is about."""
        return next(line for line in self.lines if line.id.partition("/")[2] == self.story.line)


def _staged(document: Path, story: Path, center: str, say: Say) -> _Stage:
    """Everything checked: ConfigError names what cannot be played."""
    settings = reach.read(reload.text_of(document), name=str(document), environ=os.environ)
    told = read_story(reload.text_of(story), name=str(story))
    lines = reach.lines(settings, next(iter(settings.clusters)))
    problems = [
        _problem(document, line) for line in lines if line.endpoint.host not in ("127.0.0.1", "localhost", "::1")
    ]
    if told.line not in {line.id.partition("/")[2] for line in lines}:
        names = ", ".join(line.id.partition("/")[2] for line in lines)
        problems.append(
            Problem(
                place=str(story),
                path="line",
                value=told.line,
                rule=f"is no line of {document}",
                hint=f"there are {names}",
            )
        )
    if problems:
        raise ConfigError(*problems)
    return _Stage(story=told, lines=lines, center=center.rstrip("/"), rng=Random(f"{settings.seed}/demo"), say=say)


def _problem(document: Path, line: Line) -> Problem:
    return Problem(
        place=str(document), path=line.id, value=str(line.endpoint), rule="the demo plays on this machine only",
        hint="give its lines addresses such as http://127.0.0.1:7701, or leave out --demo",
    )  # fmt: skip


async def _play(stage: _Stage, stop: asyncio.Event) -> None:
    """Services, proxies, callers and the story, until `stop`."""
    async with AsyncExitStack() as stack:
        proxies = {}
        for line in stage.lines:
            target = await stack.enter_async_context(service())
            proxy = FaultProxy(target, host=line.endpoint.host, port=line.endpoint.port, rng=Random(stage.rng.random()))
            await _open(proxy, line)
            stack.push_async_callback(proxy.stop)
            await proxy.turn(stage.story.calm.knobs)
            proxies[line.id] = proxy
        stage.say({"ready": True})
        narrator = Narrator(story=stage.story, line=stage.line.id)
        async with asyncio.TaskGroup() as tasks:
            playing = (
                tasks.create_task(_turn(stage, narrator, proxies[stage.line.id])),
                tasks.create_task(_watch(stage, narrator)),
                tasks.create_task(_callers(stage, narrator)),
            )
            await stop.wait()
            for task in playing:
                task.cancel()


async def _open(proxy: FaultProxy, line: Line) -> None:
    try:
        await proxy.start()
    except OSError as error:
        rule = f"the demo cannot listen there: {os.strerror(error.errno or 0).lower()}"
        hint = "stop the other process (`ss -ltnp` names it), or change the port in the document"
        raise ConfigError(
            Problem(place="--demo", path=line.id, value=str(line.endpoint), rule=rule, hint=hint)
        ) from error


async def _turn(stage: _Stage, narrator: Narrator, proxy: FaultProxy) -> None:
    """The script, over and over. It touches the knobs and nothing else."""
    clock = asyncio.get_running_loop().time
    while True:
        begin = clock()
        for scene in stage.story.script:
            await _until(begin + scene.at, narrator, begin)
            knobs: Knobs = stage.story.knobs_of(scene)
            await proxy.turn(knobs)
            stage.say({"print": narrator.turned(scene)})
            stage.say({"told": narrator.told()})
        await _until(begin + stage.story.length, narrator, begin)
        while not narrator.is_over:
            narrator.elapsed = clock() - begin
            await asyncio.sleep(_LOOK)
        narrator.round += 1


async def _until(due: Seconds, narrator: Narrator, begin: Seconds) -> None:
    clock = asyncio.get_running_loop().time
    while (left := due - clock()) > 0:
        narrator.elapsed = clock() - begin
        await asyncio.sleep(min(left, _LOOK))
    narrator.elapsed = due - begin


async def _watch(stage: _Stage, narrator: Narrator) -> None:
    """Put words to what the center publishes of the line."""
    while True:
        row = await asyncio.to_thread(_ask, f"{stage.center}/api/v1/lines/{narrator.line}")
        if row is not None and (words := narrator.saw(row)):
            stage.say({"print": words})
        stage.say({"told": narrator.told()})
        await asyncio.sleep(_LOOK)


def _ask(url: str) -> Mapping[str, Any] | None:
    """A JSON document of the center, or None while it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_ASK) as answer:
            row: Mapping[str, Any] = json.load(answer)
            return row
    except (OSError, ValueError):
        return None


async def _callers(stage: _Stage, narrator: Narrator) -> None:
    """The traffic process, while this one runs; its counts go to the banner."""
    cluster = stage.line.scope.cluster
    command = (
        "-m",
        "reachline.testing.traffic",
        "--center",
        stage.center,
        "--cluster",
        cluster,
        "--path",
        stage.line.endpoint.path or "/",
    )
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async for line in process.stdout:
            narrator.calls = json.loads(line)
        stage.say({"print": f"  the demo's callers ended by themselves, exit {await process.wait()}"})
    finally:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _END)


def _say(message: Mapping[str, object]) -> None:
    print(json.dumps(message), flush=True)


async def _run(document: Path, story: Path, center: str) -> None:
    stage = _staged(document, story, center, _say)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await _play(stage, stop)


def main() -> int:
    """The process; its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("document", type=Path)
    parser.add_argument("--center", required=True)
    parser.add_argument("--story", type=Path, default=STORY)
    asked = parser.parse_args()
    try:
        asyncio.run(_run(asked.document, asked.story, asked.center))
    except ConfigError as error:
        _say({"refused": [asdict(problem) for problem in error.problems]})
        return 2
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
