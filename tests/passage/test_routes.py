"""Rules that ask what a name means, and a name server that does not say."""

from __future__ import annotations

import asyncio
import json
import threading

from reachline.doors.observatory import read
from reachline.doors.observatory.carrying import read_router
from reachline.doors.observatory.matching import Question
from reachline.net.resolve import Resolver
from reachline.observatory.running import Running
from reachline.passage.routes import Routes

_DOCUMENT = json.dumps(
    {
        "outbounds": [{"tag": tag, "protocol": "freedom"} for tag in ("first", "inside", "rest")],
        "routing": {
            "domainStrategy": "IPOnDemand",
            "rules": [{"ip": ["10.0.0.0/8"], "outboundTag": "inside"}, {"port": "0-65535", "outboundTag": "rest"}],
        },
    }
)


def test_a_name_that_nobody_resolves_means_nothing_to_rules_and_holds_no_connection() -> None:
    silence = threading.Event()

    def look_up(host: str, family: int) -> tuple[str, ...]:
        del host, family
        silence.wait(60)
        return ("10.0.0.1",)

    async def main() -> tuple[str, str]:
        settings = read(_DOCUMENT)
        router = read_router(_DOCUMENT, settings, load=lambda _: None)
        resolver, question = Resolver(lookup=look_up), Question(port=80, domain="a.test")
        hasty, patient = (
            Routes(lambda: router, Running(settings), resolver, patience=patience) for patience in (0.05, 60)
        )
        try:
            before = await hasty.outbound_of(question)
            silence.set()
            return before, await patient.outbound_of(question)
        finally:
            resolver.close()

    assert asyncio.run(main()) == ("rest", "inside")
