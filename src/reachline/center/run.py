"""The role: one asyncio process that judges what agents report and publishes it. Ends when `stop` is set.

Start: sockets are taken first (a taken port is a usage error), then the journal; ledgers go on where they stood; the first
snapshots are published before anybody is answered. End: agents and readers are told, the journal is flushed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from reachline.center.api.app import application
from reachline.center.api.desk import Desk
from reachline.center.api.entry import Entry
from reachline.center.board import Board, ConfigStatus
from reachline.center.drills import Drills
from reachline.center.evidence import Evidence, offered
from reachline.center.explained import Explainer
from reachline.center.gate import Gate
from reachline.center.hold import Hold
from reachline.center.incidents import earlier
from reachline.center.intake import Intake
from reachline.center.ledgers import Compiled, compiled
from reachline.center.mesh import Meshing, MeshRules, MeshSeen
from reachline.center.orders import Orders
from reachline.center.owner import Owner
from reachline.center.reloading import Documents, Source, digest
from reachline.center.remembered import remembered
from reachline.center.roster import Agent, Expected, Roster
from reachline.center.stream import Stream
from reachline.center.usual import Usual
from reachline.center.xds.door import Closed, opened
from reachline.core.ledger import Ledger
from reachline.doors import reach
from reachline.doors.agents import WILD
from reachline.doors.effective import effective
from reachline.doors.settings import Document
from reachline.errors import ConfigError, JournalError, Problem
from reachline.model import Locality, Scope, Seconds, VantageId, Version
from reachline.net import http, kernel, rpc
from reachline.store.access import Access
from reachline.store.audit import Audit
from reachline.store.authority import Authority
from reachline.store.drills import watched
from reachline.store.journal import Journal, Recovered, recover
from reachline.store.orders import given
from reachline.wire.frame import Plan
from reachline.wire.mesh import KEY

if TYPE_CHECKING:
    from reachline.center.xds.plane import ControlPlane

__all__ = ["Options", "Started", "run"]

log = logging.getLogger("reachline.center")

_GRACE: Final[Seconds] = 1.0
"""For agents and readers to take their goodbye; the whole end stays below five seconds."""


_FRESH_MS: Final = 10_000
"""What an agent said of the mesh speaks of now for two of its intervals at least."""


class Started(NamedTuple):
    """Where a started center is reached."""

    http: str
    grpc: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a start adds to the document."""

    source: Source | None = None
    """The document's file, watched for changes; None: it never changes."""
    console: Path | None = None
    """Directory of the console's files."""
    also: Sequence[str] = ()
    """Further addresses for agents, e.g. `unix:/run/reachline.sock`."""
    insecure: bool = False
    environ: Mapping[str, str] = field(default_factory=dict)
    """For `${env:X}` when the document is read again."""
    pages: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    """More documents under `/api/v1/`, by name."""
    adopted: Callable[[Document], None] = lambda _: None
    """Called once another document is in force: its agents are let in from here on."""


class _Parts(NamedTuple):
    board: Board
    stream: Stream
    owner: Owner
    orders: Orders
    drills: Drills
    intake: Intake
    documents: Documents
    mesh: Meshing
    evidence: Evidence
    xds: ControlPlane | Closed
    gate: Gate


async def run(
    document: Document, options: Options, *, stop: asyncio.Event, ready: Callable[[Started], None] = lambda _: None
) -> None:
    """Serves until `stop` is set; ConfigError where an address or the journal cannot be had. `ready` is called once it answers."""
    gate = _gate(document)
    plain, document = document, _secured(document, gate)
    reach.refuse_exposed(document, insecure=options.insecure)
    kernel.raise_file_limit()  # every client and every agent keeps one open
    identity = _identity(document)
    async with AsyncExitStack() as stack:
        bound = _bind(document)
        stack.callback(bound.socket.close)
        journal = _opened(document)
        stack.push_async_callback(asyncio.to_thread, journal.close)
        parts = _assemble(plain, options, journal, gate)
        agents = await _agents_served(document, options, parts)
        stack.push_async_callback(agents.close, _GRACE)
        grpc_at = _reached(document, options, agents)
        desk = _desk(document, options, journal, parts)
        await stack.enter_async_context(http.serving(application(desk), bound.socket, grace=_GRACE, identity=identity))
        started = Started(bound.url, grpc_at)
        log.info("center_started", extra={"http": started.http, "grpc": ", ".join(grpc_at), "epoch": journal.epoch})
        await _serve(parts, agents, stop, lambda: ready(started))
    log.info("center_stopped")


async def _serve(parts: _Parts, agents: rpc.Server, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(parts.owner.run(), name="owner"),
            tasks.create_task(parts.stream.run(), name="stream"),
            tasks.create_task(parts.documents.run(), name="documents"),
            tasks.create_task(parts.xds.run(), name="xds"),
            tasks.create_task(parts.gate.run(), name="gate"),
        ]
        ready()
        try:
            await stop.wait()
        finally:
            parts.intake.close("the center stops")
            parts.xds.close()
            parts.board.close()
            parts.stream.close()
            for task in running:
                task.cancel()
        # Before readers go: agents come back within 0.1 s of a Bye, and should find nobody, not one who refuses them.
        await agents.close(_GRACE)
        parts.evidence.close()


def _gate(document: Document) -> Gate:
    """Whom the document lets in; ConfigError where its authority cannot be used."""
    center = document.center
    if not center.ca:
        return Gate(None)
    try:
        authority = Authority.open(Path(center.ca))
    except ConfigError as error:
        place = document.place(("center", "ca"))
        raise ConfigError(*(replace(each, place=place, path="center.ca") for each in error.problems)) from error
    binds = [address.rpartition(":")[0].strip("[]") for address in (center.grpc, center.http)]
    hosts = [host for host in binds if host not in ("", "unix", *WILD)]
    return Gate(authority, hosts=(*center.names, *hosts))


def _secured(document: Document, gate: Gate) -> Document:
    """The document with the certificate that its authority gave, where it names none itself."""
    if document.center.tls is not None or (tls := gate.tls()) is None:
        return document
    center = document.center.model_copy(update={"tls": tls})
    return document.model_copy(update={"center": center}).read_from(document.origin)


def _bind(document: Document) -> http.Bound:
    scheme = "https" if document.center.tls else "http"
    return http.bind(document.center.http, path="center.http", place=document.place(("center", "http")), scheme=scheme)


def _identity(document: Document) -> http.Identity | None:
    tls = document.center.tls
    return http.proven(http.Identity(tls.certificate, tls.key)) if tls else None


def _opened(document: Document) -> Journal:
    """The document's journal; one that cannot be had is the document's fault."""
    center = document.center
    try:
        return Journal.open(center.journal, keep_age=center.journal_keep, keep_bytes=center.journal_size)
    except JournalError as error:
        place = document.place(("center", "journal"))
        raise ConfigError(Problem(place=place, path="center.journal", value="", rule=str(error))) from error


def _assemble(document: Document, options: Options, journal: Journal, gate: Gate) -> _Parts:
    """All parts, with ledgers that go on where the journal ends."""
    plain, document = document, gate.complete(document)
    clock, wanted = journal.timeline(), compiled(document)
    now_ms = clock()
    recovered = recover(document.center.journal)
    roster = Roster(_expected(document))
    name = str(options.source.path) if options.source else ""
    config = ConfigStatus(name=name, digest=digest(plain), loaded=round(time.time(), 3))
    board = Board(clock=clock, origin=time.time() - now_ms / 1000, roster=roster, config=config)
    _remember(board, document)
    board.version = Version(max(journal.epoch, recovered.version.epoch + 1), 0)
    stream = Stream(board)
    ledgers = _ledgers(wanted, recovered, board, now_ms)
    holds = {scope: Hold(since_ms=now_ms) for scope in ledgers if scope in recovered.ledgers}
    owner = Owner(board=board, stream=stream, journal=journal, ledgers=ledgers, holds=holds)
    owner.begin(wanted)
    past = given(document.center.journal)
    orders = Orders(owner=owner, board=board, past=past)
    orders.follow()
    drills = Drills(owner=owner, board=board, orders=orders, watch=watched(document.center.journal, past))
    documents = Documents(plain, options.source, options.environ, board, complete=gate.complete)
    mesh = Meshing(os.urandom(KEY), roster)
    mesh.reconfigure(_mesh(document))
    xds = opened(board, document, rng=Random(os.urandom(8)))
    intake = _intake(board, owner, documents, mesh, xds, gate=gate)
    evidence = _evidence(board, owner, documents, xds, gate)

    def apply(document: Document) -> None:
        for gone in roster.expect(_expected(document)):
            intake.end(gone, "the document no longer names this agent")
        owner.reconfigure(compiled(document))
        orders.follow()
        drills.follow()
        mesh.reconfigure(_mesh(document))
        intake.replan()
        xds.follow(document)
        options.adopted(document)

    documents.apply = apply
    gate.changed = partial(_members_changed, intake, documents)
    return _Parts(board, stream, owner, orders, drills, intake, documents, mesh, evidence, xds, gate)


def _remember(board: Board, document: Document) -> None:
    """What the journal has of earlier."""
    board.remember(remembered(document.center.journal))
    board.log.remember(earlier(document.center.journal))


def _members_changed(intake: Intake, documents: Documents, out: frozenset[str]) -> None:
    for name in out:
        intake.end(VantageId(name), "the center's operators shut this agent out")
    documents.again()


def _intake(
    board: Board, owner: Owner, documents: Documents, mesh: Meshing, xds: ControlPlane | Closed, *, gate: Gate
) -> Intake:
    """The agents' door: their plans from the document in force, told anew when what is usual on their lines moves."""
    usual = Usual(owner.ledgers, board.clock)

    def plan(agent: Agent, number: int) -> Plan:
        return reach.plan(documents.current, agent=agent.id, locality=agent.locality, number=number, usual=usual.of)

    def published() -> None:
        intake.hint()
        if usual.has_moved():
            intake.replan()
        xds.refresh()

    intake = Intake(board=board, owner=owner, plan=plan, mesh=mesh, gate=gate)
    owner.published = published
    return intake


def _evidence(board: Board, owner: Owner, documents: Documents, xds: ControlPlane | Closed, gate: Gate) -> Evidence:
    """The data planes' door. An Envoy that probes is told what an agent in its place would be."""
    token = documents.current.center.token

    def plan(agent: Agent, number: int) -> Plan:
        return reach.plan(documents.current, agent=agent.id, locality=agent.locality, number=number)

    return offered(
        owner=owner, board=board, plan=plan, document=lambda: documents.current, speaks=gate.speaks,
        token=token.get_secret_value() if token else "", resolved=xds.resolved,
    )  # fmt: skip


def _ledgers(wanted: Mapping[Scope, Compiled], recovered: Recovered, board: Board, now_ms: int) -> dict[Scope, Ledger]:
    """A ledger for every cluster: recovered with its rows and the new epoch, or new."""
    found = {}
    for scope, cluster in wanted.items():
        ledger = recovered.ledgers.get(scope)
        if ledger is None:
            members = cluster.vantages
            ledger = Ledger(scope, cluster.lines, cluster.rules, vantages=members, version=board.version, now_ms=now_ms)
        else:
            board.roster.adopt(ledger.poll.vantages if not cluster.vantages else (), now_ms)
            ledger.rebase(board.version)
        found[scope] = ledger
    return found


def _expected(document: Document) -> dict[VantageId, Expected]:
    return {
        VantageId(name): Expected(
            Locality(region=agent.locality.region, zone=agent.locality.zone, sub_zone=agent.locality.sub_zone),
            agent.token.get_secret_value() if agent.token else "",
        )
        for name, agent in document.agents.items()
    }


def _mesh(document: Document) -> MeshRules:
    beat = min(effective(document, name).settings.judge.heartbeat for name in document.clusters)
    return MeshRules(
        enabled=document.mesh.enabled,
        interval_ms=round(1_000 * document.mesh.every),
        peers=document.mesh.most,
        # One heartbeat may be lost and one late, as for a vote.
        fresh_ms=max(round(2_500 * beat), _FRESH_MS),
        reached={name: agent.mesh for name, agent in document.agents.items() if agent.mesh},
    )


async def _agents_served(document: Document, options: Options, parts: _Parts) -> rpc.Server:
    """Agents are let in until the server is closed."""
    addresses = (document.center.grpc, *options.also)
    places = {document.center.grpc: document.place(("center", "grpc"))}
    return await rpc.serve(
        addresses,
        parts.intake.attached,
        credentials=_credentials(document),
        places=places,
        services=parts.gate.guarded({**parts.xds.services, **parts.evidence.services, **parts.gate.services}),
    )


def _reached(document: Document, options: Options, agents: rpc.Server) -> tuple[str, ...]:
    addresses = (document.center.grpc, *options.also)
    return tuple(_shown(address, port) for address, port in zip(addresses, agents.ports, strict=True))


def _shown(address: str, port: int) -> str:
    """The address with its real port, for one that asked for any."""
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


def _credentials(document: Document) -> rpc.ServerCredentials | None:
    tls = document.center.tls
    if tls is None:
        return None
    try:
        return rpc.server_credentials(certificate=tls.certificate, key=tls.key, client_ca=tls.client_ca or "")
    except OSError as error:
        place, rule = document.place(("center", "tls")), f"cannot be used ({error.strerror})"
        raise ConfigError(Problem(place=place, path="center.tls", value=str(error.filename), rule=rule)) from error


def _desk(document: Document, options: Options, journal: Journal, parts: _Parts) -> Desk:
    token = document.center.token

    def mesh() -> MeshSeen:
        return parts.mesh.seen(parts.board.clock())

    explainer = Explainer(
        board=parts.board, owner=parts.owner, journal=Path(document.center.journal), mesh=mesh, told=parts.evidence.told
    )
    return Desk(
        board=parts.board,
        owner=parts.owner,
        orders=parts.orders,
        drills=parts.drills,
        stream=parts.stream,
        document=lambda: parts.documents.current,
        explain=explainer.explain,
        journal_figures=journal.figures,
        mesh=mesh,
        evidence=parts.evidence,
        xds=parts.xds.page,
        followers=parts.xds.followers,
        gate=parts.gate,
        entry=Entry(Access(Path(document.center.access))) if document.center.access else None,
        audit=Audit(Path(document.center.journal) / "audit.jsonl"),
        token=token.get_secret_value() if token else "",
        console=options.console,
        pages=options.pages,
    )
