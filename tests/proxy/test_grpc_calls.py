"""Calls of gRPC's own client to gRPC's own server through our proxy, and through a real Envoy beside it: each ends as it would there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from tests.differential.real import binary
from tests.differential.real import running as envoy_running
from tests.proxy.test_following import Files
from tests.proxy.world import FILE_LOG, WITHIN, Loop, cluster, document, forward, http, listener, manager, running

from reachline.testing.wait import eventually

pytestmark = pytest.mark.real

NAME = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
HTTP2 = {NAME: {"@type": f"type.googleapis.com/{NAME}", "explicit_http_config": {"http2_protocol_options": {}}}}
TURNS = 20
LARGE = 3 << 20
"""Bytes of a message: more than a window, and no more than gRPC takes."""


class Service:
    """A server that does what the method's name says."""

    def __init__(self) -> None:
        self.began, self.cancelled = threading.Event(), threading.Event()
        """Of `/t/Hang`."""
        self.failures = 0
        """Calls of `/t/Flaky` that fail yet."""
        kinds = {
            "Echo": grpc.unary_unary_rpc_method_handler(self._echo),
            "Fail": grpc.unary_unary_rpc_method_handler(self._fail),
            "Flaky": grpc.unary_unary_rpc_method_handler(self._flaky),
            "Hang": grpc.unary_unary_rpc_method_handler(self._hang),
            "Count": grpc.unary_stream_rpc_method_handler(self._count),
            "Half": grpc.unary_stream_rpc_method_handler(self._half),
            "Sum": grpc.stream_unary_rpc_method_handler(self._sum),
            "Talk": grpc.stream_stream_rpc_method_handler(self._talk),
        }
        self._server = grpc.server(ThreadPoolExecutor(16))
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t", kinds),))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def close(self) -> None:
        self._server.stop(0).wait(WITHIN)

    def _echo(self, asked: bytes, context: grpc.ServicerContext) -> bytes:
        told = dict(context.invocation_metadata())
        context.send_initial_metadata((("x-first", str(told.get("x-mine", "")).upper()),))
        context.set_trailing_metadata((("x-last", "of all"), ("x-raw-bin", b"\0\xff")))
        return asked

    def _fail(self, asked: bytes, context: grpc.ServicerContext) -> bytes:
        context.set_trailing_metadata((("x-why", "because"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"not {asked.decode()} für 100 %\n")
        raise AssertionError

    def _flaky(self, asked: bytes, context: grpc.ServicerContext) -> bytes:
        if self.failures:
            self.failures -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        return asked

    def _hang(self, _: bytes, context: grpc.ServicerContext) -> bytes:
        is_over = threading.Event()
        self.began.set()
        context.add_callback(is_over.set)
        is_over.wait(WITHIN)
        self.cancelled.set()
        return b""

    def _count(self, asked: bytes, _: grpc.ServicerContext) -> Iterator[bytes]:
        for number in range(int(asked)):
            yield b"%d" % number

    def _half(self, _: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        yield b"some"
        context.abort(grpc.StatusCode.DATA_LOSS, "and no more")

    def _sum(self, asked: Iterator[bytes], _: grpc.ServicerContext) -> bytes:
        return b"%d" % sum(map(int, asked))

    def _talk(self, asked: Iterator[bytes], _: grpc.ServicerContext) -> Iterator[bytes]:
        for each in asked:
            yield each[::-1]


class Ended(NamedTuple):
    """How a call ended."""

    code: str
    details: str
    said: tuple[bytes, ...]
    first: frozenset[tuple[str, str | bytes]]
    last: frozenset[tuple[str, str | bytes]]


CHANGING = {"date", "x-envoy-upstream-service-time", "user-agent"}


def _fields(metadata: Any) -> frozenset[tuple[str, str | bytes]]:
    return frozenset((key, value) for key, value in metadata or () if key not in CHANGING)


def called(channel: grpc.Channel, method: str, asked: bytes | list[bytes], **more: Any) -> Ended:
    """One call, to its end."""
    many = isinstance(asked, list)
    streams = method.rpartition("/")[2] in {"Count", "Half", "Talk"}
    kind = f"{'stream' if many else 'unary'}_stream" if streams else f"{'stream' if many else 'unary'}_unary"
    call = getattr(channel, kind)(method)
    question = iter(asked) if many else asked
    said: list[bytes] = []
    more = {"timeout": WITHIN, **more}
    try:
        if streams:
            found = call(question, **more)
            said += found
        else:
            answer, found = call.with_call(question, **more)
            said.append(answer)
    except grpc.RpcError as error:
        found = error
    return Ended(
        found.code().name,
        found.details(),
        tuple(said),
        _fields(found.initial_metadata()),
        _fields(found.trailing_metadata()),
    )


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.close()


SAID = "%REQ(X-MINE)% %REQ(:PATH)% %GRPC_STATUS% %GRPC_STATUS(SNAKE_STRING)% %GRPC_STATUS(NUMBER)% %GRPC_STATUS_NUMBER% %TRAILER(X-LAST?X-WHY)% %RESPONSE_CODE%\n"
FAILING = {"grpc_status_filter": {"statuses": ["UNAVAILABLE", "UNIMPLEMENTED", "FAILED_PRECONDITION"]}}


def logged(path: Path) -> list[dict[str, Any]]:
    """One log of all calls, one of those that failed."""
    form = {"@type": FILE_LOG, "log_format": {"text_format_source": {"inline_string": SAID}}}
    return [
        {"name": "all", "typed_config": {**form, "path": f"{path}.all"}},
        {"name": "failing", "filter": FAILING, "typed_config": {**form, "path": f"{path}.failing"}},
    ]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """How names of logs begin, by proxy."""
    return {name: tmp_path_factory.mktemp("logs") / "log" for name in ("ours", "envoy")}


@pytest.fixture(scope="module")
def channels(
    loop: Loop, service: Service, logs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, grpc.Channel]]:
    """One to the server by way of our proxy, and where there is one, one by way of Envoy."""
    retry = {"retry_on": "unavailable", "num_retries": 2, "retry_back_off": {"base_interval": "0.001s"}}
    routes = [
        forward("/t/Flaky", "a", retry_policy=retry), forward("/late", "a", prefix_rewrite="/t", timeout="0.3s"),
        forward("/dead", "dead"), forward("/t/", "a", timeout="0s"),
    ]  # fmt: skip
    clusters = [
        cluster(name, [port], typed_extension_protocol_options=HTTP2)
        for name, port in (("a", service.port), ("dead", 1))
    ]
    given = {name: http(routes, clusters, access_log=logged(path)) for name, path in logs.items()}
    found = binary()
    with running(loop, given["ours"]) as ours:
        channels = {"ours": grpc.insecure_channel(f"127.0.0.1:{ours.port}")}
        if found is None:
            yield channels
        else:
            with envoy_running(found, given["envoy"], tmp_path_factory.mktemp("envoy")) as envoy:
                channels["envoy"] = grpc.insecure_channel(f"127.0.0.1:{envoy.port}")
                yield channels
                channels["envoy"].close()
        channels["ours"].close()


def alike(channels: dict[str, grpc.Channel], method: str, asked: bytes | list[bytes], **more: Any) -> Ended:
    """How a call ends by way of ours, which is how it ends by way of Envoy."""
    found = {name: called(channel, method, asked, **more) for name, channel in channels.items()}
    if "envoy" in found:
        assert found["ours"] == found["envoy"]
    return found["ours"]


def test_a_call_and_what_is_said_around_it_pass(channels: dict[str, grpc.Channel]) -> None:
    found = alike(channels, "/t/Echo", b"hello", metadata=(("x-mine", "abc"),))

    assert (found.code, found.said) == ("OK", (b"hello",))
    assert ("x-first", "ABC") in found.first
    assert {("x-last", "of all"), ("x-raw-bin", b"\0\xff")} <= found.last


def test_a_large_message_passes_both_ways(channels: dict[str, grpc.Channel]) -> None:
    asked = bytes(range(256)) * (LARGE >> 8)

    assert called(channels["ours"], "/t/Echo", asked).said == (asked,)


def test_a_call_that_fails_says_why(channels: dict[str, grpc.Channel]) -> None:
    found = alike(channels, "/t/Fail", b"so")

    assert (found.code, found.details) == ("FAILED_PRECONDITION", "not so für 100 %\n")
    assert ("x-why", "because") in found.last
    assert alike(channels, "/t/Nothing", b"").code == "UNIMPLEMENTED"


def test_streams_pass_message_by_message(channels: dict[str, grpc.Channel]) -> None:
    assert alike(channels, "/t/Count", b"500").said == tuple(b"%d" % number for number in range(500))
    assert alike(channels, "/t/Sum", [b"%d" % number for number in range(500)]).said == (b"124750",)
    assert alike(channels, "/t/Talk", [b"ab", b"cd"]).said == (b"ba", b"dc")
    half = alike(channels, "/t/Half", b"")
    assert (half.code, half.said, half.details) == ("DATA_LOSS", (b"some",), "and no more")


def test_each_message_is_answered_before_the_next_is_asked(channels: dict[str, grpc.Channel]) -> None:
    turn = threading.Semaphore(1)

    def asking() -> Iterator[bytes]:
        for number in range(20):
            assert turn.acquire(timeout=WITHIN)
            yield b"%d" % number

    said = []
    talking: Any = channels["ours"].stream_stream("/t/Talk")
    for each in talking(asking(), timeout=WITHIN):
        said.append(each)
        turn.release()

    assert said == [(b"%d" % number)[::-1] for number in range(20)]


@pytest.mark.parametrize("gone", ["deadline", "cancel"])
def test_a_call_that_is_given_up_is_given_up_at_the_server(
    channels: dict[str, grpc.Channel], service: Service, gone: str
) -> None:
    service.began.clear()
    service.cancelled.clear()
    call: Callable[..., Any] = channels["ours"].unary_unary("/t/Hang").future

    under_way = call(b"", timeout=2.0 if gone == "deadline" else WITHIN)
    assert service.began.wait(WITHIN)
    if gone == "cancel":
        under_way.cancel()
        assert under_way.cancelled()
    else:
        with pytest.raises(grpc.RpcError) as told:
            under_way.result()
        assert told.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    assert service.cancelled.wait(WITHIN)


def test_a_call_that_the_proxy_ends_gets_its_status(channels: dict[str, grpc.Channel]) -> None:
    late = alike(channels, "/late/Hang", b"")
    dead = alike(channels, "/dead/Echo", b"")
    none = alike(channels, "/nowhere/Echo", b"")

    assert (late.code, late.details) == ("UNAVAILABLE", "upstream request timeout")
    assert (dead.code, "remote connection failure" in dead.details) == ("UNAVAILABLE", True)
    assert none.code == "UNIMPLEMENTED"


def test_logs_say_how_calls_ended_as_envoys_do(channels: dict[str, grpc.Channel], logs: dict[str, Path]) -> None:
    if "envoy" not in channels:
        pytest.skip("no Envoy: `make envoy`, or REACHLINE_ENVOY names its binary")
    methods = ["/t/Echo", "/t/Fail", "/t/Nothing", "/late/Hang", "/dead/Echo", "/nowhere/Echo", "/t/Count"]
    for method in methods:
        alike(channels, method, b"1", metadata=(("x-mine", "logs"),))

    def lines(name: str, kind: str) -> list[str]:
        return sorted(
            each for each in Path(f"{logs[name]}.{kind}").read_text().splitlines() if each.startswith("logs ")
        )

    for kind, count in (("all", 7), ("failing", 5)):
        eventually(lambda: len(lines("ours", kind)) >= count <= len(lines("envoy", kind)))  # noqa: B023
        assert lines("ours", kind) == lines("envoy", kind)
    assert "logs /t/Echo OK OK 0 0 of all 200" in lines("ours", "all")


def test_a_call_that_its_headers_end_is_tried_again(channels: dict[str, grpc.Channel], service: Service) -> None:
    for failures, code in ((2, "OK"), (3, "UNAVAILABLE")):
        for channel in channels.values():
            service.failures = failures
            assert called(channel, "/t/Flaky", b"x").code == code
            assert service.failures == 0


def test_calls_go_on_where_the_server_ends_its_connections(loop: Loop) -> None:
    service = Service()
    given = http(
        [forward("/", "a", timeout="0s")], [cluster("a", [service.port], typed_extension_protocol_options=HTTP2)]
    )
    with running(loop, given) as proxy, grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        turn = threading.Event()

        def asking() -> Iterator[bytes]:
            yield b"ab"
            assert turn.wait(WITHIN)
            yield b"cd"

        talking: Any = channel.stream_stream("/t/Talk")
        talk = talking(asking(), timeout=WITHIN)
        assert next(talk) == b"ba"
        stopped = service._server.stop(WITHIN)  # GOAWAY; what is under way ends first
        eventually(lambda: called(channel, "/t/Echo", b"x").code == "UNAVAILABLE")
        turn.set()

        assert list(talk) == [b"dc"]
        assert stopped.wait(WITHIN)


def test_no_call_fails_while_the_listener_is_replaced(loop: Loop, service: Service, tmp_path: Path) -> None:
    files = Files(tmp_path)
    reached = cluster("a", [service.port], typed_extension_protocol_options=HTTP2)

    def write(number: int) -> None:
        files.write("lds", [listener(manager([forward("/", "a", timeout="0s")], server_name=f"of-{number}"))])

    write(0)
    given = {**document([], [reached]), "node": {"id": "n", "cluster": "c"}}
    given["dynamic_resources"] = {"lds_config": files.source("lds")}
    with running(loop, given) as proxy, grpc.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
        ends: list[str] = []
        is_over = threading.Event()

        def load() -> None:
            while not is_over.is_set():
                found = called(channel, "/t/Echo", b"x")
                ends.append(found.code if found.said else found.details)

        threads = [threading.Thread(target=load) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for number in range(1, TURNS + 1):
                seen = proxy.figures()["http.in.downstream_cx_total"]
                write(number)
                eventually(lambda: proxy.figures()["http.in.downstream_cx_total"] > seen)  # noqa: B023
        finally:
            is_over.set()
            for thread in threads:
                thread.join(WITHIN)

    assert set(ends) == {"OK"}
    assert len(ends) > TURNS
