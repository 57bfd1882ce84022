from __future__ import annotations

import pytest

from reachline.core.hashing import xxh64
from reachline.core.pick.bounded import shuffled
from reachline.core.pick.keying import Asked, By, HashPolicy, cookie_for, key_of

ASKED = Asked(
    headers={"x-user": ["foo"], "x-many": ["foo", "bar"], "cookie": ["a=1; session=foo", 'b="bar"; empty=']},
    path="/pay?id=bar&user=foo&user=other&flag&enc=%41#user=no",
    source_ip="10.0.0.1",
    state={"tenant": 2**64 + 5},
)
FOO, BAR = xxh64(b"foo"), xxh64(b"bar")


@pytest.mark.parametrize(
    ("by", "name", "key"),
    [
        (By.HEADER, "X-User", FOO),
        (By.HEADER, "x-many", xxh64(b"foo", BAR)),
        (By.HEADER, "absent", None),
        (By.COOKIE, "session", FOO),
        (By.COOKIE, "b", BAR),
        (By.COOKIE, "empty", None),
        (By.COOKIE, "absent", None),
        (By.SOURCE_IP, "", xxh64(b"10.0.0.1")),
        (By.QUERY_PARAMETER, "user", FOO),
        (By.QUERY_PARAMETER, "flag", xxh64(b"")),
        (By.QUERY_PARAMETER, "enc", xxh64(b"%41")),
        (By.QUERY_PARAMETER, "absent", None),
        (By.STATE, "tenant", 5),
        (By.STATE, "absent", None),
    ],
)
def test_a_key_is_the_hash_of_what_the_policy_names(by: By, name: str, key: int | None) -> None:
    assert key_of([HashPolicy(by=by, name=name)], ASKED) == key


def test_parts_combine_by_rotation_and_xor_so_that_none_cancels_another() -> None:
    user, cookie = HashPolicy(by=By.HEADER, name="x-user"), HashPolicy(by=By.COOKIE, name="b")
    turned = (FOO << 1 | FOO >> 63) & (2**64 - 1)

    assert key_of([user, cookie], ASKED) == turned ^ BAR
    assert key_of([user, user], ASKED) == turned ^ FOO
    assert key_of([user, HashPolicy(by=By.HEADER, name="absent"), cookie], ASKED) == turned ^ BAR
    assert key_of([], ASKED) is None


def test_a_terminal_part_is_the_last_one_once_there_is_a_key() -> None:
    absent = HashPolicy(by=By.HEADER, name="absent", terminal=True)
    user, cookie = HashPolicy(by=By.HEADER, name="x-user", terminal=True), HashPolicy(by=By.COOKIE, name="b")

    assert key_of([absent, user, cookie], ASKED) == FOO
    assert key_of([cookie, absent, user], ASKED) == BAR


def test_a_cookie_is_made_of_both_ends_and_keeps_its_key_when_it_comes_back() -> None:
    made = cookie_for("10.0.0.1:5000", "10.0.0.2:80")

    assert made == f"{xxh64(b'10.0.0.1:500010.0.0.2:80'):016x}"
    back = Asked(headers={"cookie": [f"session={made}"]})
    assert key_of([HashPolicy(by=By.COOKIE, name="session")], back) == xxh64(made.encode())


def test_the_order_of_a_bounds_next_choices_is_that_of_a_mersenne_twister_seeded_by_the_key() -> None:
    # The first numbers of the twister with its own default seed, as published: 3499211612, 581869302, 3890346734, 3586334585.
    drawn = [3_499_211_612, 581_869_302, 3_890_346_734, 3_586_334_585]
    places = list(range(4))
    for at, number in enumerate(drawn):
        other = at + number // (2**32 // (4 - at))
        places[at], places[other] = places[other], places[at]

    assert list(shuffled(5_489, 4)) == places
    assert list(shuffled(2**32 + 5_489, 4)) == places
    assert sorted(shuffled(2**64 - 1, 50)) == list(range(50))
