"""One call tried again: on another line, if it may be, while there is time, and as often as the process can pay for."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import trio

from reachline.errors import Shed
from reachline.model import LineId, Version
from reachline.upstream import Attempt, Cluster, LineList, Listed
from reachline.upstream.listing import Admitted, target
from reachline.upstream.tries import BUDGET, SharedBudget, Tries, attempts


def cluster(lines: int = 3, *, plan: Admitted | None = None, patience: float = 1.0) -> Cluster:
    made = Cluster("payments", clock=time.monotonic, rng=random.Random(1), patience=patience)
    rows = tuple(Listed(LineId(f"payments/{n}"), target(f"tcp://10.0.0.{n}:80"), 100, 100) for n in range(lines))
    made.replace(LineList(cluster="payments", lines=rows, version=Version(1, 1), plan=plan), source="center")
    made.wake()
    return made


@pytest.fixture(autouse=True)
def budget() -> Iterator[None]:
    """Each test begins with nothing spent."""
    BUDGET.renew()
    yield
    BUDGET.renew()


class Answer:
    def __init__(self, status: int) -> None:
        self.status_code = status


class Raised(Exception):  # noqa: N818 - as httpx and requests raise for a status
    def __init__(self, status: int) -> None:
        self.response = Answer(status)


def failing(times: int, error: BaseException | int, seen: list[str]) -> Callable[[Attempt], Answer]:
    def function(call: Attempt) -> Answer:
        seen.append(str(call.line))
        if len(seen) > times:
            return Answer(200)
        if isinstance(error, int):
            return Answer(error)
        raise error

    return function


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), TimeoutError(), ConnectionRefusedError(), 502, 503, 504, Raised(503)]
)
def test_what_another_line_might_do_better_is_tried_there(error: BaseException | int) -> None:
    made, seen = cluster(), []

    answer = made.call(failing(2, error, seen), idempotent=True)

    assert answer.status_code == 200
    assert sorted(seen) == ["payments/0", "payments/1", "payments/2"]
    calls = made.stats().calls
    assert (calls.ok, calls.retries, calls.failed + calls.late + calls.errors) == (1, 2, 2)


@pytest.mark.parametrize("error", [ValueError("mine"), OSError("disk"), 500, 501, 404, 429, Raised(500)])
def test_what_another_line_would_do_alike_is_the_calls_end(error: BaseException | int) -> None:
    made, seen = cluster(), []

    if isinstance(error, int):
        assert made.call(failing(9, error, seen), idempotent=True).status_code == error
    else:
        with pytest.raises(type(error)):
            made.call(failing(9, error, seen), idempotent=True)

    assert len(seen) == 1


def test_a_word_that_is_none_is_refused_before_the_call_is_made() -> None:
    made, seen = cluster(), []

    with pytest.raises(TypeError, match="a call has no idempotant; it may have idempotent, tries,"):
        made.call(failing(0, 500, seen), idempotant=True)  # type: ignore[call-arg]

    assert seen == []


def test_only_what_may_be_made_twice_is_tried_again() -> None:
    made, seen = cluster(), []

    with pytest.raises(ConnectionResetError):
        made.call(failing(1, ConnectionResetError(), seen))

    assert len(seen) == 1


def test_the_last_error_is_raised_after_as_many_tries_as_are_allowed() -> None:
    made, seen = cluster(9), []

    with pytest.raises(TimeoutError):
        made.call(failing(99, TimeoutError(), seen), idempotent=True, tries=4)

    assert len(set(seen)) == 4


def test_there_is_no_retry_where_there_is_no_other_line() -> None:
    made, seen = cluster(2), []

    with pytest.raises(ConnectionResetError):
        made.call(failing(99, ConnectionResetError(), seen), idempotent=True, tries=9)

    assert sorted(seen) == ["payments/0", "payments/1"]
    assert made.stats().calls.unpaid == 0


def test_the_budget_is_the_processs_and_not_the_clusters() -> None:
    BUDGET.renew()
    one, other, seen = cluster(2), cluster(2), []
    while BUDGET.spend():
        pass

    for made in (one, other):
        with pytest.raises(ConnectionResetError):
            made.call(failing(99, ConnectionResetError(), seen), idempotent=True)

    assert len(seen) == 2
    assert one.stats().calls.unpaid == other.stats().calls.unpaid == 1


def test_a_service_that_answers_nothing_is_asked_a_fifth_more_often_and_ten_times_a_second() -> None:
    shared, made = SharedBudget(), cluster(3)
    began, tries = time.monotonic(), 0
    for _ in range(1_000):
        call = Tries(made, {"idempotent": True}, shared)
        while True:
            attempt, tries = call.begin(), tries + 1
            attempt.fail("reset")
            attempt.__exit__(None, None, None)
            if call.again(attempt) is None:
                break

    # However long it took: ten are given with each second that was touched.
    assert 1_200 <= tries <= 1_200 + 10 * (int(time.monotonic() - began) + 2)


def test_no_try_begins_after_the_deadline_and_each_is_told_what_is_left() -> None:
    made, seen = cluster(9), []
    for each in made.attempts(idempotent=True, deadline=0.0):
        with each as call:
            seen.append(call.remaining)
            call.fail("timeout")
    assert seen == [0.0]

    for each in made.attempts(idempotent=True, deadline=1_000.0):
        with each as call:
            assert call.remaining is not None
            assert 900 < call.remaining <= 1_000

    with made.attempt() as call:
        assert call.remaining is None


def test_a_loop_ends_with_the_first_try_that_went_well() -> None:
    made, lines = cluster(), []

    for each in attempts(made, idempotent=True):
        with each as call:
            lines.append(call.line)
            call.status(503 if len(lines) == 1 else 200)

    assert len(set(lines)) == len(lines) == 2


def test_the_callers_word_over_an_answer_is_the_last() -> None:
    made, seen = cluster(), []

    def function(call: Attempt) -> Answer:
        seen.append(call.line)
        call.ok()
        return Answer(503)

    assert made.call(function, idempotent=True).status_code == 503
    assert (len(seen), made.stats().calls.ok) == (1, 1)


def test_an_interrupt_is_never_a_reason_to_try_again() -> None:
    made, seen = cluster(), []

    with pytest.raises(KeyboardInterrupt):
        made.call(failing(9, KeyboardInterrupt(), seen), idempotent=True)

    assert len(seen) == 1


def test_a_cancelled_call_stays_cancelled_however_late_it_was() -> None:
    made, seen = cluster(patience=0.0), []

    with pytest.raises(asyncio.CancelledError):
        made.call(failing(9, asyncio.CancelledError(), seen), idempotent=True)

    assert len(seen) == 1
    assert made.stats().calls.late == 1


def test_a_line_that_waits_for_its_one_trial_is_no_refuge_for_a_retry() -> None:
    made = cluster(2)
    for _ in range(2):
        made.report(next(pick for pick, _ in made.offers if pick.line == "payments/0"), "timeout")
    made._clock = lambda: time.monotonic() + 3_600
    made.turn()
    tried = next(pick for pick, _ in made.offers if pick.line == "payments/1")

    assert {pick.line for pick, _ in made.offers} == {"payments/0", "payments/1"}
    assert made.another((tried,)) is None


def test_an_answer_that_begins_has_taken_its_time() -> None:
    made = cluster()

    with made.attempt() as call:
        call.answered()
        told = call.elapsed

    assert told is not None
    assert call.elapsed == told


def test_without_any_line_the_function_is_called_once_and_sees_it() -> None:
    made, seen = cluster(0), []

    with pytest.raises(ConnectionResetError):
        made.call(failing(9, ConnectionResetError(), seen), idempotent=True)

    assert seen == ["None"]


def test_a_call_that_was_let_in_is_not_shed_at_its_second_try() -> None:
    made, seen = cluster(2, plan=Admitted(share=1e-9, regions={})), []

    with pytest.raises(Shed):
        made.call(failing(0, 503, seen), idempotent=True)
    tries = Tries(made, {"idempotent": True})
    attempt = Attempt(made, choice=made.another(()))
    with pytest.raises(ConnectionResetError), attempt:
        raise ConnectionResetError

    assert tries.again(attempt) is not None
    with tries.begin() as second:
        assert second.line not in {None, attempt.line}


def test_asyncio_and_trio_wait_in_their_own_way() -> None:
    async def function(call: Attempt) -> Answer:
        if call.line == "payments/0":
            raise ConnectionResetError
        return Answer(503 if call.line == "payments/1" else 200)

    async def main() -> int:
        made = cluster()
        found = [await made.acall(function, idempotent=True) for _ in range(3)]
        return sum(each.status_code == 200 for each in found)

    assert asyncio.run(main()) == trio.run(main) == 3


def test_a_loop_may_be_asynchronous() -> None:
    async def main() -> list[str]:
        lines = []
        for each in cluster().attempts(idempotent=True):
            async with each as call:
                lines.append(str(call.line))
                if len(lines) < 3:
                    raise ConnectionResetError
        return lines

    assert len(set(asyncio.run(main()))) == len(set(trio.run(main))) == 3


def test_a_forked_childs_lock_is_its_own() -> None:
    shared = SharedBudget()
    while shared.spend():
        pass
    shared._lock.acquire()

    shared.renew()

    assert shared.spend()
    assert not shared._lock.locked()


def test_threads_pay_for_each_retry_once() -> None:
    shared, paid = SharedBudget(), []
    for _ in range(500):
        shared.earn()

    def spend() -> None:
        paid.extend([shared.spend() for _ in range(200)])

    threads = [threading.Thread(target=spend) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert 100 <= sum(paid) <= 100 + 10 * 5
