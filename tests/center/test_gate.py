"""Who may report as whom by the certificate it shows, how long it stays, and who joins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from reachline.center.gate import Admission, Gate
from reachline.center.roster import Refusal
from reachline.doors import reach
from reachline.errors import RemoteProtocolError
from reachline.net.rpc import Call, Conversation, Write
from reachline.store.authority import AGENT_LIFE, Authority
from reachline.wire.certificates import RENEW, Role, certified, make_request, renewed_at

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "ca", "prod.example", now=NOW)


@pytest.fixture
def gate(authority: Authority, clock: Clock) -> Gate:
    return Gate(authority, hosts=("center.example",), wall=clock)


def issued(authority: Authority, name: str, role: Role = "agent") -> bytes:
    return authority.issue(role, name, make_request(name).shown, life=AGENT_LIFE, by="test", now=NOW)


def reason(found: Admission | Refusal) -> str:
    assert isinstance(found, Refusal)
    return found.reason


def test_an_agent_reports_as_itself_alone(gate: Gate, authority: Authority):
    shown = issued(authority, "a")

    assert gate.admitted(shown, "a") == Admission(NOW + AGENT_LIFE)
    assert reason(gate.admitted(shown, "b")) == "its certificate is agent a's, not agent b's"


@pytest.mark.parametrize("role", ["client", "center"])
def test_who_is_no_agent_reports_as_none(gate: Gate, authority: Authority, role: Role):
    assert reason(gate.admitted(issued(authority, "a", role), "a")) == f"its certificate is {role} a's, not agent a's"


def test_an_agent_of_another_domain_is_none_of_ours(gate: Gate, tmp_path: Path):
    other = Authority.create(tmp_path / "other", "other.example", now=NOW)

    assert reason(gate.admitted(issued(other, "a"), "a")) == "its certificate is of other.example, not of prod.example"


def test_over_a_unix_socket_nobody_shows_a_certificate(gate: Gate):
    assert gate.admitted(b"", "a") == Admission()


def test_without_an_authority_a_certificate_still_speaks_for_whom_it_names(authority: Authority):
    shown = issued(authority, "a")

    assert gate_of_none().admitted(shown, "a") == Admission(NOW + AGENT_LIFE)
    assert "not agent b's" in reason(gate_of_none().admitted(shown, "b"))


def gate_of_none() -> Gate:
    return Gate(None, wall=lambda: NOW)


def test_who_was_shut_out_is_refused_at_the_next_look(gate: Gate, authority: Authority):
    shown, told = issued(authority, "a"), []
    assert isinstance(gate.admitted(shown, "a"), Admission)
    gate.changed = told.append

    authority.shut_out("agent", "a")
    gate._look()

    assert told == [frozenset({"a"})]
    assert reason(gate.admitted(shown, "a")) == "agent a was shut out"


def test_somebody_stays_as_long_as_its_certificate_holds(gate: Gate, authority: Authority, clock: Clock):
    admitted = gate.admitted(issued(authority, "a"), "a")
    assert isinstance(admitted, Admission)

    clock.now += timedelta(hours=23)
    assert gate.left(admitted) == 3_600
    clock.now += timedelta(days=1)
    assert gate.left(admitted) == 0.0
    assert gate.left(Admission()) is None


def test_members_count_beside_the_documents_agents(gate: Gate, authority: Authority):
    document = reach.read("clusters: {c: {lines: ['tcp://a:1']}}\nagents: {named: {}}", name="x")
    assert gate.complete(document) is document

    unnamed = reach.read("clusters: {c: {lines: ['tcp://a:1']}}", name="x")
    issued(authority, "a")
    issued(authority, "named")
    issued(authority, "sdk", "client")
    gate._look()

    assert set(gate.complete(document).agents) == {"named", "a"}
    assert gate.complete(unnamed) is unnamed, "the first member keeps nobody out who comes unnamed"


def test_who_joins_counts_at_once(gate: Gate, authority: Authority):
    told = []
    gate.changed = told.append
    token = authority.token(role="agent", by="ann", now=NOW)

    joined = asyncio.run(gate.join(token, "a", make_request("a").shown))

    assert joined.identity.uri == "spiffe://prod.example/agent/a"
    assert joined.authority == authority.certificate
    assert told == [frozenset()]


def test_too_many_refusals_within_a_minute_are_not_looked_at_any_more(gate: Gate, authority: Authority, clock: Clock):
    async def work() -> None:
        token = authority.token(role="agent", by="ann", now=NOW)
        for _ in range(30):
            with pytest.raises(PermissionError):
                await gate.join("junk", "a", b"")
        with pytest.raises(TimeoutError, match="come again"):
            await gate.join(token, "a", make_request("a").shown)
        clock.now += timedelta(minutes=1)
        assert await gate.join(token, "a", make_request("a").shown)

    asyncio.run(work())


def test_without_an_authority_nobody_joins():
    with pytest.raises(PermissionError, match="has no authority"):
        asyncio.run(gate_of_none().join("junk", "a", b""))
    assert not gate_of_none().services


def test_a_member_renews_as_itself(gate: Gate, authority: Authority, clock: Clock):
    shown = issued(authority, "a")
    clock.now += AGENT_LIFE / 2

    (chain,) = renewals(gate, shown, make_request("somebody-else").shown)

    said = certified(chain)
    assert said.identity is not None
    assert (said.identity.name, said.ends) == ("a", clock.now + AGENT_LIFE)


@pytest.mark.parametrize("shown", [b"", "none"])
def test_who_shows_nothing_of_ours_renews_nothing(gate: Gate, shown: object):
    raw = b"" if shown == b"" else stranger()

    with pytest.raises(PermissionError):
        renewals(gate, raw, make_request("a").shown)


def test_what_is_no_request_is_refused(gate: Gate, authority: Authority):
    with pytest.raises(RemoteProtocolError):
        renewals(gate, issued(authority, "a"), b"junk")


def stranger() -> bytes:
    return trustme.CA().issue_cert("a.example").cert_chain_pems[0].bytes()


def renewals(gate: Gate, shown: bytes, request: bytes) -> list[bytes]:
    async def asked() -> AsyncIterator[bytes]:
        yield request

    service = gate.guarded(gate.services)[RENEW]
    assert not isinstance(service, Conversation)

    async def work() -> list[bytes]:
        return [chain async for chain in service(asked(), Call("peer", {}, shown))]

    return asyncio.run(work())


def test_the_center_certifies_itself_for_where_it_is_reached_and_in_time(
    gate: Gate, authority: Authority, clock: Clock
):
    tls = gate.tls()
    assert tls is not None
    own = Path(tls.certificate)
    first = own.read_bytes()

    assert own.stat().st_mode & 0o077 == 0
    assert tls.client_ca == str(authority.directory / "ca.pem")
    assert certified(first).identity == ("prod.example", "center", "center")
    assert gate._is_good(own)
    clock.now = renewed_at(certified(first))
    assert not gate._is_good(own)


def test_a_state_that_cannot_be_read_changes_nothing_and_ends_nothing(gate: Gate, authority: Authority):
    shown = issued(authority, "a")
    assert isinstance(gate.admitted(shown, "a"), Admission)

    (authority.directory / "state.json").write_text("{")
    gate._look()
    gate._look()

    assert isinstance(gate.admitted(shown, "a"), Admission)
    assert "is damaged" in gate._complaint


def test_a_disk_that_takes_nothing_leaves_the_center_its_certificate(gate: Gate, authority: Authority, clock: Clock):
    tls = gate.tls()
    assert tls is not None
    first = Path(tls.certificate).read_bytes()
    clock.now = renewed_at(certified(first))
    (authority.directory / ".own.pem.new").mkdir()  # what is put in place stands there first: nothing can

    asyncio.run(gate._renewed_in_time())

    assert Path(tls.certificate).read_bytes() == first
    assert gate._complaint


async def quiet() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def call_of(gate: Gate, shown: bytes, kind: str) -> asyncio.Task[None]:
    """One call of a guarded service that waits for what never comes."""

    async def service(frames: AsyncIterator[bytes], _: Call) -> AsyncIterator[bytes]:
        async for frame in frames:
            yield frame

    async def hold(frames: AsyncIterator[bytes], _: Call, __: Write) -> None:
        async for _frame in frames:
            pass

    async def write(_: bytes) -> None:
        """Nobody reads."""

    async def made() -> None:
        call = Call("peer", {}, shown)
        guarded = gate.guarded({"s": service if kind == "service" else Conversation(hold)})["s"]
        if isinstance(guarded, Conversation):
            await guarded.hold(quiet(), call, write)
        else:
            async for _answer in guarded(quiet(), call):
                pass

    return asyncio.create_task(made())


@pytest.mark.parametrize("kind", ["service", "conversation"])
@pytest.mark.parametrize("role", ["client", "agent"])
def test_who_is_shut_out_is_cut_off_from_every_service(gate: Gate, authority: Authority, kind: str, role: Role):
    shown = issued(authority, "a", role)

    async def work() -> None:
        call = call_of(gate, shown, kind)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not call.done()

        authority.shut_out(role, "a")
        gate._look()

        with pytest.raises(PermissionError, match="shut out"):
            await asyncio.wait_for(call, 60)
        with pytest.raises(PermissionError, match=f"{role} a was shut out"):
            await asyncio.wait_for(call_of(gate, shown, kind), 60)
        assert not gate._stays

    asyncio.run(work())


@pytest.mark.parametrize("kind", ["service", "conversation"])
def test_a_call_ends_with_its_certificate(gate: Gate, authority: Authority, clock: Clock, kind: str):
    shown = issued(authority, "a", "client")

    async def work() -> None:
        clock.now += AGENT_LIFE - timedelta(milliseconds=1)
        with pytest.raises(PermissionError, match="has ended, or"):
            await asyncio.wait_for(call_of(gate, shown, kind), 60)
        clock.now += timedelta(milliseconds=1)
        with pytest.raises(PermissionError, match="certificate has ended"):
            await asyncio.wait_for(call_of(gate, shown, kind), 60)

    asyncio.run(work())


def test_a_certificate_that_is_over_renews_nothing(gate: Gate, authority: Authority, clock: Clock):
    shown = issued(authority, "a")
    clock.now += AGENT_LIFE

    with pytest.raises(PermissionError, match="certificate has ended"):
        renewals(gate, shown, make_request("a").shown)


def test_over_another_service_too_everybody_judges_as_itself_alone(gate: Gate, authority: Authority):
    agent, envoy, namesake = (
        issued(authority, "a"),
        issued(authority, "envoy", "client"),
        issued(authority, "a", "client"),
    )
    gate._look()

    assert gate.speaks(agent, "a") == gate.speaks(envoy, "envoy") == gate.speaks(b"", "a") == ""
    assert gate.speaks(agent, "b") == "its certificate is agent a's: it does not judge as b"
    assert gate.speaks(envoy, "a") == "its certificate is client envoy's: it does not judge as a"
    assert gate.speaks(namesake, "a")
