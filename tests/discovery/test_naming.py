"""A name over time, as a pure function: when it is asked, and which of its addresses count."""

from __future__ import annotations

import math
from random import Random

import pytest

from reachline.discovery.naming import DnsSettings, Family, Name, deadline, heard, in_use, trouble
from reachline.errors import ConfigError
from reachline.net.hosts import candidates, in_hosts, resolv_conf
from reachline.wire.dns import Answer, Message
from reachline.wire.dns_answer import Answered, Found, read

V4 = DnsSettings(family=Family.V4, jitter=0)
FAILED = {"A": Found(Answered.FAILED, error="the name server says SERVFAIL")}
MISSING = {"A": Found(Answered.MISSING, error="name does not exist")}
EMPTY = {"A": Found(Answered.EMPTY, error="name has no address")}


def found(*addresses: str, ttl: int = 60) -> dict[str, Found]:
    return {"A": Found(Answered.FOUND, addresses, ttl)}


def after(
    *answers: dict[str, Found], settings: DnsSettings = V4, every: float = 10.0, rng: Random | None = None
) -> Name:
    """The name after these answers, at 0, `every`, …"""
    name = Name(host="a.test", due=0.0)
    for at, answer in enumerate(answers):
        name = heard(name, answer, at * every, settings, rng or Random(1))
    return name


@pytest.mark.parametrize(("ttl", "respects", "wait"), [(60, True, 60), (0, True, 1), (60, False, 5), (0, False, 5)])
def test_an_answer_holds_for_its_ttl_above_the_floor_or_for_the_refresh(ttl: int, respects: bool, wait: float) -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, respect_ttl=respects)

    assert after(found("10.0.0.1", ttl=ttl), settings=settings).due == wait


@pytest.mark.parametrize(("ttl", "refresh"), [(86_400, 5), (2**31 - 1, 5), (0, 7_200)])
def test_a_name_is_asked_again_long_before_its_addresses_are_stale(ttl: int, refresh: float) -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, refresh=refresh, respect_ttl=bool(ttl), stale_after=3_600)
    name = after(found("10.0.0.1", ttl=ttl), settings=settings)

    assert name.due == 1_800
    assert in_use(name, name.due, settings) == ("10.0.0.1",)


def test_of_both_families_the_smaller_ttl_counts() -> None:
    both = found("10.0.0.1", ttl=60) | {"AAAA": Found(Answered.FOUND, ("fd00::1",), 7)}

    assert after(both, settings=DnsSettings(jitter=0)).due == 7


def test_jitter_adds_up_to_its_length_and_differs_by_seed() -> None:
    settings = DnsSettings(family=Family.V4, jitter=2.0)

    dues = {after(found("10.0.0.1"), settings=settings, rng=Random(seed)).due for seed in range(50)}

    assert len(dues) == 50
    assert min(dues) >= 60
    assert 61.5 < max(dues) <= 62


def test_failures_double_the_wait_up_to_the_ceiling_each_in_its_upper_half() -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, failure_base=1, failure_max=6)
    waits = [after(*[FAILED] * n, settings=settings, every=0).due for n in (1, 2, 3, 4, 2_000)]

    for wait, most in zip(waits, (1, 2, 4, 6, 6), strict=True):
        assert most / 2 <= wait <= most


def test_a_success_forgets_the_failures() -> None:
    name = after(FAILED, FAILED, found("10.0.0.1"), FAILED)

    assert (name.failures, name.error) == (1, "the name server says SERVFAIL")


def test_without_a_failure_base_failures_wait_the_refresh() -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, failure_base=None)

    assert after(FAILED, FAILED, FAILED, settings=settings, every=0).due == 5


def test_a_failure_keeps_the_addresses_until_they_are_stale() -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, stale_after=25)
    name = after(found("10.0.0.1"), FAILED, settings=settings)

    assert in_use(name, 24.9, settings) == ("10.0.0.1",)
    assert in_use(name, 25, settings) == ()
    assert trouble(name, 11, settings) == "a.test: the name server says SERVFAIL: its last addresses serve on"
    assert trouble(name, 25, settings) == "a.test: the name server says SERVFAIL"


@pytest.mark.parametrize("answer", [MISSING, EMPTY])
@pytest.mark.parametrize(("empty_for", "until"), [(0, 10), (30, 40), (math.inf, 10**9)])
def test_an_empty_answer_drops_keeps_or_keeps_for_a_while(
    answer: dict[str, Found], empty_for: float, until: float
) -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, empty_for=empty_for, stale_after=math.inf)
    name = after(found("10.0.0.1"), answer, settings=settings)

    assert in_use(name, until - 0.001, settings) == ("10.0.0.1",)
    assert math.isinf(empty_for) or in_use(name, until, settings) == ()


def test_further_empty_answers_do_not_renew_the_hold() -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, empty_for=15)
    name = after(found("10.0.0.1"), MISSING, MISSING, settings=settings)

    assert in_use(name, 24.9, settings) == ("10.0.0.1",)
    assert in_use(name, 25, settings) == ()


def test_addresses_that_are_kept_over_empty_answers_are_not_stale_while_those_come() -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, empty_for=math.inf, stale_after=15)

    assert in_use(after(found("10.0.0.1"), MISSING, MISSING, settings=settings), 30, settings) == ("10.0.0.1",)


def test_the_end_of_a_hold_is_a_deadline() -> None:
    settings = DnsSettings(family=Family.V4, jitter=0, empty_for=3)
    name = after(found("10.0.0.1"), MISSING, settings=settings)

    assert deadline(name, 10, settings) == 13
    assert deadline(name, 13, settings) == name.due == 15


def test_a_family_that_is_gone_goes_at_once_while_the_other_one_is_there() -> None:
    settings = DnsSettings(jitter=0)
    both = found("10.0.0.1") | {"AAAA": Found(Answered.FOUND, ("fd00::1",), 60)}
    name = after(both, found("10.0.0.1") | {"AAAA": Found(Answered.EMPTY)}, settings=settings)

    assert in_use(name, 10, settings) == ("10.0.0.1",)
    assert name.error == ""


def test_a_family_that_fails_keeps_its_addresses_beside_the_others_new_ones() -> None:
    settings = DnsSettings(jitter=0)
    both = found("10.0.0.1") | {"AAAA": Found(Answered.FOUND, ("fd00::1",), 60)}
    name = after(both, found("10.0.0.2") | {"AAAA": Found(Answered.FAILED, error="x")}, settings=settings)

    assert in_use(name, 10, settings) == ("10.0.0.2", "fd00::1")
    assert name.failures == 1


@pytest.mark.parametrize(
    ("family", "addresses"),
    [
        (Family.V4, ("10.0.0.1",)), (Family.V6, ("fd00::1",)), (Family.BOTH, ("10.0.0.1", "fd00::1")),
        (Family.V6_FIRST, ("fd00::1",)), (Family.V4_FIRST, ("10.0.0.1",)),
    ],
)  # fmt: skip
def test_family_says_which_addresses_count(family: Family, addresses: tuple[str, ...]) -> None:
    settings = DnsSettings(family=family, jitter=0)
    answers = found("10.0.0.1") | {"AAAA": Found(Answered.FOUND, ("fd00::1",), 60)}
    name = after({kind: answers[kind] for kind in family.kinds}, settings=settings)

    assert in_use(name, 0, settings) == addresses


def test_a_preferred_family_that_the_name_lacks_gives_way() -> None:
    settings = DnsSettings(family=Family.V6_FIRST, jitter=0)

    assert in_use(after(found("10.0.0.1") | {"AAAA": Found(Answered.EMPTY)}, settings=settings), 0, settings) == (
        "10.0.0.1",
    )


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"refresh": 0.0}, "dns: refresh: must be 0.001 s or more, and end (got 0.0)"),
        ({"jitter": math.nan}, "dns: jitter: must be 0 s or more, and end (got nan)"),
        ({"stale_after": -1.0}, "dns: stale_after: must be 0 s or more (got -1.0)"),
        ({"failure_base": 5.0, "failure_max": 2.0}, "dns: failure_max: must be failure_base (5 s) or more (got 2.0)"),
    ],
)
def test_settings_that_cannot_be_are_refused(fields, said) -> None:
    with pytest.raises(ConfigError) as caught:
        DnsSettings(**fields)

    assert str(caught.value) == said


# -- what a message says ------------------------------------------------------------------------------------------------


def message(*answers: Answer, rcode: int = 0) -> Message:
    return Message(1, rcode, False, b"", answers)


def test_the_smallest_ttl_of_a_chain_counts_wherever_it_stands() -> None:
    chain = (Answer("a.test", "CNAME", "b.test", 300), Answer("b.test", "CNAME", "c.test", 4))

    answer = read(
        message(*chain, Answer("c.test", "A", "10.0.0.1", 60), Answer("c.test", "A", "10.0.0.2", 90)), "A.test.", "A"
    )

    assert answer == Found(Answered.FOUND, ("10.0.0.1", "10.0.0.2"), 4)


def test_addresses_of_other_names_are_no_answer() -> None:
    assert read(message(Answer("evil.test", "A", "10.0.0.66", 1)), "a.test", "A").answered is Answered.EMPTY


def test_aliases_in_a_circle_end() -> None:
    circle = (Answer("a.test", "CNAME", "b.test", 1), Answer("b.test", "CNAME", "a.test", 1))

    assert read(message(*circle), "a.test", "A").answered is Answered.EMPTY


@pytest.mark.parametrize(
    ("rcode", "answered"), [(0, Answered.EMPTY), (3, Answered.MISSING), (2, Answered.FAILED), (5, Answered.FAILED)]
)
def test_a_code_says_whether_it_is_an_answer_at_all(rcode: int, answered: Answered) -> None:
    assert read(message(rcode=rcode), "a.test", "A").answered is answered


# -- where names are asked ----------------------------------------------------------------------------------------------


def test_resolv_conf_is_read_with_its_defaults_and_ceilings() -> None:
    conf = resolv_conf(
        "# x\nnameserver 10.0.0.53 ; y\nnameserver fd00::53\nnameserver bad\nsearch a.test. b.test\noptions ndots:99 attempts:0 timeout:3 rotate\n"
    )

    assert [str(each) for each in conf.servers] == ["10.0.0.53:53", "[fd00::53]:53"]
    assert (conf.search, conf.dots, conf.wait, conf.tries) == (("a.test", "b.test"), 15, 3.0, 1)
    assert [str(each) for each in resolv_conf("").servers] == ["127.0.0.1:53"]


def test_a_name_with_few_dots_is_searched_first_and_a_full_one_never() -> None:
    conf = resolv_conf("search ns.svc svc\noptions ndots:2")

    assert candidates("pay", conf) == ("pay.ns.svc", "pay.svc", "pay")
    assert candidates("pay.a.test", conf) == ("pay.a.test", "pay.a.test.ns.svc", "pay.a.test.svc")
    assert candidates("pay.", conf) == ("pay.",)


def test_the_hosts_file_gives_every_address_of_a_name() -> None:
    text = "127.0.0.1 localhost\n::1 LOCALHOST ip6 # x\n10.0.0.1 other\nbad localhost\n"

    assert in_hosts(text, "localhost.") == ("127.0.0.1", "::1")
