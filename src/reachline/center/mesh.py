"""Who asks whom in the mesh, where, by which keys, and what came of it. Sends nothing: the intake asks for each agent's part.

The secret is drawn anew at each start of a center; who asks by an old key counts from the first answer to the new one, so that a
restart is no loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from reachline.center.matrix import Matrix, Ways
from reachline.center.roster import Roster
from reachline.doors.addresses import is_public
from reachline.model import VantageId
from reachline.net.stamped import numeric
from reachline.wire.frame import Hello, Mesh, MeshReport, Peer
from reachline.wire.matrix import MeshDocument
from reachline.wire.mesh import identity, key_of, pair_key

__all__ = ["FEATURE", "MeshRules", "MeshSeen", "Meshing", "neighbours"]

FEATURE: Final = "mesh"
"""An agent that names it understands the mesh's frame."""
_WILD: Final = frozenset(("0.0.0.0", "::"))


class MeshRules(NamedTuple):
    """What the document says. `reached` is where it says that agents are reached."""

    enabled: bool = True
    interval_ms: int = 200
    peers: int = 100
    fresh_ms: int = 25_000
    """How old what an agent said may be and still speak of now."""
    reached: Mapping[str, str] = {}


class MeshSeen(NamedTuple):
    """The mesh at one moment, for any thread to read."""

    rules: MeshRules
    agents: tuple[tuple[str, str], ...]
    """By name, with where each is asked; empty text where it is not."""
    ways: Ways

    def document(self, *, agent: str = "", only_trouble: bool = False) -> MeshDocument:
        """What the API shows: all ways, those of one agent, or those in trouble."""
        return {
            "enabled": self.rules.enabled,
            "every": self.rules.interval_ms / 1_000,
            "agents": [{"agent": one, "address": where or None} for one, where in self.agents],
            "ways": self.ways.rows(agent=agent, only_trouble=only_trouble),
        }


class Meshing:
    """Written by the center's loop."""

    def __init__(self, secret: bytes, roster: Roster) -> None:
        self._secret, self._roster = secret, roster
        self.rules = MeshRules()
        self._announced: dict[VantageId, str] = {}
        """Where agents said that they answer."""
        self._here: set[VantageId] = set()
        """Agents of the center's own machine: they alone reach what answers on its loopback."""
        self._known: dict[tuple[str, str], Peer] = {}
        self._matrix = Matrix()

    def reconfigure(self, rules: MeshRules) -> None:
        """Another document is in force."""
        self.rules = rules

    def attached(self, hello: Hello, peer: str) -> None:
        """An agent came, from the gRPC peer `peer`: where does it answer?"""
        id_ = VantageId(hello.agent)
        self._announced.pop(id_, None)
        (self._here.discard if is_public(f"{_bracketed(_came_from(peer))}:1") else self._here.add)(id_)
        if hello.mesh and (where := _reached(hello, peer, is_proven=bool(self._roster.token(id_)))):
            self._announced[id_] = where

    def heard(self, agent: VantageId, reports: Sequence[MeshReport], now_ms: int) -> None:
        """What an agent found out of the others, as far as they are known."""
        known = [each for each in reports if self._roster.get(VantageId(each.peer))]
        self._matrix.take(agent, known, now_ms)

    def seen(self, now_ms: int) -> MeshSeen:
        """All that is known now, for people."""
        rules, addresses = self.rules, self.addresses()
        members = self._kept()
        ways = self._matrix.seen(now_ms, fresh_ms=rules.fresh_ms, silent_ms=10 * rules.interval_ms)
        return MeshSeen(rules, tuple((one, addresses.get(one, "")) for one in members), ways)

    def _kept(self) -> list[VantageId]:
        """Who is there, by name; what was told of others is forgotten."""
        members = sorted(self._roster.localities())
        self._matrix.keep(members if self.rules.enabled else ())
        return members

    def addresses(self) -> dict[VantageId, str]:
        """Where each agent of the roster that can be asked is reached, by name."""
        if not self.rules.enabled:
            return {}
        members = sorted(self._roster.localities())
        known = frozenset(members)
        self._announced = {one: where for one, where in self._announced.items() if one in known}
        self._here &= known
        found = {one: self.rules.reached.get(one) or self._announced.get(one, "") for one in members}
        return {one: where for one, where in found.items() if where}

    def parts(self, agents: Sequence[VantageId]) -> dict[VantageId, Mesh]:
        """What these agents must do."""
        addresses = self.addresses()
        self._kept()
        known, self._known = self._known, {}
        return {agent: self._part(agent, addresses, known) for agent in agents}

    def _part(
        self, agent: VantageId, addresses: Mapping[VantageId, str], known: Mapping[tuple[str, str], Peer]
    ) -> Mesh:
        if not self.rules.enabled:
            return Mesh()
        is_here = agent in self._here
        reached = {one for one, where in addresses.items() if is_here or is_public(where)}
        others = neighbours(sorted(reached | {agent}), agent, self.rules.peers)
        peers = []
        for other in others:
            peer = known.get((agent, other))
            if peer is None or peer.address != addresses[other]:
                key = pair_key(key_of(self._secret, other), identity(agent))
                peer = Peer(agent=other, address=addresses[other], key=key)
            self._known[agent, other] = peer
            peers.append(peer)
        return Mesh(
            key=key_of(self._secret, agent),
            listen=self.rules.reached.get(agent, ""),
            interval_ms=self.rules.interval_ms,
            peers=tuple(peers),
        )


def neighbours(names: Sequence[VantageId], me: VantageId, most: int) -> tuple[VantageId, ...]:
    """Whom `me` asks of these sorted names: all others, or the nearest of a ring, as many on either side: who asks is asked."""
    count, place = len(names), names.index(me)
    if count - 1 <= most:
        return tuple(name for name in names if name != me)
    side = most // 2
    return tuple(names[(place + step) % count] for step in (*range(-side, 0), *range(1, side + 1)))


def _reached(hello: Hello, peer: str, *, is_proven: bool) -> str:
    """Where others reach what the agent bound: a wildcard stands for its own source address, or the one it came from.

    Who showed no token is asked where it came from, whatever it says: nobody can send our agents to a stranger.
    """
    host, _, port = hello.mesh.rpartition(":")
    bare = host.strip("[]")
    if not (bare and port.isdecimal() and 0 < int(port) < 65_536):
        return ""
    if bare in _WILD:
        own = (one for one in hello.sources if numeric(one, 0))  # a word among them is none
        bare = next((one for one in own if (":" in one) == (":" in bare)), "")
    bare = bare if bare and is_proven else _came_from(peer)
    # It listens to one family, and may come to us by the other: then only the document can say where it is.
    return f"{_bracketed(bare)}:{port}" if (":" in bare) == (":" in host) else ""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _came_from(peer: str) -> str:
    """The host of a gRPC peer, `ipv4:10.0.0.3:52100` or `ipv6:%5B::1%5D:52100`; this machine for a Unix socket.

    An IPv4 peer of a door that listens to both families comes as `::ffff:10.0.0.3`.
    """
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return "127.0.0.1"
    return (urlsplit(f"tcp://{rest}").hostname or "127.0.0.1").removeprefix("::ffff:")
