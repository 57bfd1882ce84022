"""Who may ask a real center for what: roles, sessions, failed log-ins, and what is kept of all that."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import websockets

from reachline.center.api.entry import needed
from reachline.store.access import Access, Role

PASSWORD = "correct horse battery"
DRAIN = {"action": "drain", "target": "payments/a", "for": 3_600, "reason": "a test", "force": True}
DOCUMENT = """
clusters: {payments: {lines: {a: "tcp://127.0.0.1:9", b: "tcp://127.0.0.1:9"}}}
center: {grpc: "127.0.0.1:0", http: "127.0.0.1:0", journal: JOURNAL, access: ACCESS}
"""


@pytest.fixture
def access(tmp_path: Path) -> Access:
    made = Access(tmp_path / "access.json")
    made.set_person("ann", "operator", PASSWORD, now=datetime.now(UTC))
    return made


@pytest.fixture
def guarded(center, access: Access, tmp_path: Path):
    return lambda **more: center(DOCUMENT.replace("ACCESS", str(tmp_path / "access.json")), **more)


def bearer(access: Access, role: Role) -> dict[str, str]:
    text = access.new_token(role, role, life=timedelta(hours=1), by="test", now=datetime.now(UTC))
    return {"authorization": f"Bearer {text}"}


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/api/v1/lines", "viewer"),
        ("GET", "/api/v1/ws", "viewer"),
        ("GET", "/metrics", "viewer"),
        ("POST", "/api/v1/outcomes", "client"),
        ("POST", "/api/v1/heartbeats", "client"),
        ("POST", "/api/v1/orders", "operator"),
        ("DELETE", "/api/v1/orders/1", "operator"),
        ("POST", "/api/v1/drills", "operator"),
        ("POST", "/api/v1/anything-new", "operator"),
        ("GET", "/api/v1/audit", "admin"),
    ],
)
def test_what_a_request_needs(method: str, path: str, role: Role):
    assert needed(method, path) == role


def test_a_token_is_enough_for_its_role_and_no_more(guarded, access, sync):
    async def work():
        async with guarded() as running:
            seen = {}
            for role in ("viewer", "client", "operator", "admin"):
                headers = bearer(access, role)
                answers = [
                    await running.get("/api/v1/lines", headers=headers),
                    await running.client.post("/api/v1/outcomes", content=b"{}", headers=headers),
                    await running.client.post("/api/v1/orders?dry_run=true", json=DRAIN, headers=headers),
                    await running.get("/api/v1/audit", headers=headers),
                ]
                seen[role] = [answer.status_code for answer in answers]
            assert seen == {
                "viewer": [200, 403, 403, 403],
                "client": [200, 400, 403, 403],
                "operator": [200, 400, 200, 403],
                "admin": [200, 400, 200, 200],
            }

    sync(work())


def test_who_shows_nothing_sees_nothing_but_whether_the_center_is_well(guarded, sync):
    async def work():
        async with guarded() as running:
            for path in ("/api/v1/lines", "/api/v1/stream", "/metrics", "/api/v1/docs", "/api/v1/openapi.json", "/"):
                assert (await running.get(path)).status_code == 401, path
            assert (await running.get("/healthz")).status_code == 200
            assert (await running.get("/api/v1/lines", headers={"authorization": "Bearer junk"})).status_code == 401

    sync(work())


def test_a_browser_is_led_to_the_log_in(guarded, sync):
    async def work():
        async with guarded() as running:
            answer = await running.get("/", headers={"accept": "text/html"})
            assert (answer.status_code, answer.headers["location"]) == (303, "/login.html?next=/")

    sync(work())


def test_a_session_lets_in_until_its_end_and_its_cookie_is_for_no_script(guarded, access, sync):
    async def work():
        async with guarded() as running:
            answer = await running.client.post("/api/v1/session", json={"name": "ann", "password": PASSWORD})
            assert answer.json() == {"name": "ann", "role": "operator"}
            cookie = answer.headers["set-cookie"].lower()
            assert all(word in cookie for word in ("httponly", "samesite=strict", "max-age=43200", "path=/"))

            assert (await running.get("/api/v1/session")).json()["name"] == "ann"
            assert (await running.get("/api/v1/lines")).status_code == 200
            placed = await running.client.post("/api/v1/orders", json=DRAIN)
            assert placed.json()["orders"][0]["by"] == "ann"

            held = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
            assert (await running.client.delete("/api/v1/session")).status_code == 200
            running.client.cookies.clear()
            assert (await running.get("/api/v1/lines", headers=held)).status_code == 401

    sync(work())


@pytest.mark.parametrize("change", ["removed", "password"])
def test_a_session_ends_with_its_person_or_its_password(guarded, access, sync, change):
    async def work():
        async with guarded() as running:
            await running.client.post("/api/v1/session", json={"name": "ann", "password": PASSWORD})
            assert (await running.get("/api/v1/lines")).status_code == 200
            if change == "removed":
                access.remove("ann")
            else:
                access.set_person("ann", "operator", "another password", now=datetime.now(UTC))
            assert (await running.get("/api/v1/lines")).status_code == 401

    sync(work())


def test_after_five_failures_a_name_waits_whatever_it_says_and_others_do_not(guarded, access, sync):
    async def work():
        access.set_person("bob", "viewer", PASSWORD, now=datetime.now(UTC))
        async with guarded() as running:
            wrong = {"name": "ann", "password": "wrong horse battery"}
            codes = [(await running.client.post("/api/v1/session", json=wrong)).status_code for _ in range(6)]
            assert codes == [401] * 5 + [429]
            assert (
                await running.client.post("/api/v1/session", json=wrong | {"password": PASSWORD})
            ).status_code == 429
            assert (
                await running.client.post("/api/v1/session", json=wrong | {"name": "bob", "password": PASSWORD})
            ).status_code == 200

    sync(work())


def test_tries_at_the_same_time_are_no_more_than_tries_one_after_the_other(guarded, access, sync):
    async def work():
        async with guarded() as running:
            wrong = {"name": "ann", "password": "wrong horse battery"}
            tries = [running.client.post("/api/v1/session", json=wrong) for _ in range(20)]
            codes = [answer.status_code for answer in await asyncio.gather(*tries)]
            # Two are looked at at once, so one more than five may be under way already.
            assert codes.count(401) in (5, 6)
            assert codes.count(401) + codes.count(429) == 20

    sync(work())


def test_a_page_of_another_site_logs_nobody_in_and_orders_nothing(guarded, access, sync):
    async def work():
        async with guarded() as running:
            foreign = {"origin": "https://evil.example", **bearer(access, "admin")}
            for path, body in (("/api/v1/session", {"name": "ann", "password": PASSWORD}), ("/api/v1/orders", DRAIN)):
                assert (await running.client.post(path, json=body, headers=foreign)).status_code == 403

    sync(work())


def test_what_people_did_is_kept_over_a_restart_with_who_and_what_came_of_it(guarded, access, sync):
    async def work():
        async with guarded() as running:
            await running.client.post("/api/v1/session", json={"name": "ann", "password": "wrong horse battery"})
            await running.client.post("/api/v1/session", json={"name": "ann", "password": PASSWORD})
            await running.client.post("/api/v1/orders", json=DRAIN)
            await running.client.post("/api/v1/outcomes", content=b"{}")
            running.client.cookies.clear()
            await running.client.post("/api/v1/orders", json=DRAIN)
        async with guarded() as running:
            deeds = (await running.get("/api/v1/audit", headers=bearer(access, "admin"))).json()["deeds"]
            assert [(deed["who"], deed["what"], deed["status"]) for deed in reversed(deeds)] == [
                ("ann", "POST /api/v1/session", 401),
                ("ann", "POST /api/v1/session", 200),
                ("ann", "POST /api/v1/orders", 200),
                ("", "POST /api/v1/orders", 401),
            ]
            assert {deed["address"] for deed in deeds} == {"127.0.0.1"}

    sync(work())


def test_a_strangers_request_commands_no_terminal_where_it_is_read(guarded, access, sync):
    async def work():
        async with guarded() as running:
            await running.client.post("/%1b%5d0;evil%07")
            (deed,) = (await running.get("/api/v1/audit", headers=bearer(access, "admin"))).json()["deeds"]
            assert deed["what"] == "POST /\\x1b]0;evil\\x07"

    sync(work())


def test_a_socket_is_refused_without_a_session(guarded, sync):
    async def work():
        async with guarded() as running:
            url = running.http.replace("http", "ws") + "/api/v1/ws"
            with pytest.raises(websockets.exceptions.InvalidStatus):
                await websockets.connect(url)

    sync(asyncio.wait_for(work(), 60))
