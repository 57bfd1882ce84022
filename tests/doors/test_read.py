"""Reading a document: everything wrong at once, each with place, key, value, rule and hint; nothing secret."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reachline.doors import reach
from reachline.doors.settings import Document
from reachline.errors import ConfigError, Problem
from reachline.model import Locality

SMALLEST = "clusters:\n  payments:\n    lines: [https://a.example/healthz, https://b.example/healthz]\n"


def read(text: str, *, environ: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None) -> Document:
    return reach.read(text, name="r.yaml", environ=environ or {}, secret_file=(files or {}).__getitem__)


def problems(text: str, **given: Mapping[str, str]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, **given)
    return [str(problem) for problem in caught.value.problems]


def test_three_lines_are_a_document() -> None:
    document = read(SMALLEST)

    assert [line.id for line in reach.lines(document, "payments")] == ["payments/a.example", "payments/b.example"]
    assert document.warnings == ()


EVERYTHING = """\
mode: fsat
circut_breaker: {}
cooldown_seconds: 5
clusters:
  shop:
    preset: quick
    probes: {tcp: 5, http: {every: 1ms, expect: 700, headers: {Authorization: [1]}}, htpp: 3}
    lines:
      - https://a.example/healthz
      - gopher://x
      - {to: "tcp://h", via: "socks5://bob:geheim@10.0.0.9"}
      - {via: direct}
  shop:
    lines: []
  "b d": {lines: {a: tcp://h:70000}}
  ok: {lines: {a: "tcp://h:1"}, enforce: yes}
  other: {lines: {a: "tcp://h:1", b: "tcp://h:2"}, policy: primary_backup}
agents:
  x: {token: 5, locality: {zone: "a/b"}, tokn: sesame}
center: {grpc: "1.2.3.4", journal: }
"""

LISTING = """\
r.yaml:1:7: mode: must be literal or fast; did you mean fast? (got 'fsat')
r.yaml:2:1: circut_breaker: unknown key; did you mean 'circuit_breaker'?
r.yaml:3:1: cooldown_seconds: unknown key; it belongs under circuit_breaker or clusters.NAME.circuit_breaker
r.yaml:6:13: clusters.shop.preset: must be quick_recovery or default or high_stability; did you mean quick_recovery? (got 'quick')
r.yaml:7:19: clusters.shop.probes.tcp: must be a duration with its unit; did you mean 5s or 5ms? (got 5)
r.yaml:7:36: clusters.shop.probes.http.every: must be at least 100ms (got '1ms')
r.yaml:7:49: clusters.shop.probes.http.expect: must be HTTP statuses of 100…599; write 200, 2xx, 200-399 or a list of them (got 700)
r.yaml:7:79: clusters.shop.probes.http.headers.Authorization: must be a text (got a list)
r.yaml:7:86: clusters.shop.probes.htpp: unknown key; did you mean 'http'?
r.yaml:10:9: clusters.shop.lines[1]: must begin with one of tcp://, http://, https://, tls://, dns://, icmp://, grpc://, grpcs://, redis://, rediss://, udp://; tcp://host:port observes any TCP service (got 'gopher://x')
r.yaml:11:14: clusters.shop.lines[2].to: needs a port; did you mean tcp://h:443? (got 'tcp://h')
r.yaml:11:30: clusters.shop.lines[2].via: needs the proxy's port; did you mean socks5://bob@10.0.0.9:1080? (got 'socks5://***@10.0.0.9')
r.yaml:12:9: clusters.shop.lines[3].to: is needed; tcp://host:port, http(s)://host/path, tls://host:port, grpc(s)://host:port/service, redis(s)://host, udp://host:port, dns://server/name or icmp://host.
r.yaml:13:3: clusters.shop: stands here a second time (first at line 5); keep one of them
r.yaml:15:3: clusters."b d": must be a name: letters, digits, '.', '_' and '-', not first, at most 63; names become line ids, cluster/line[@origin]
r.yaml:15:22: clusters."b d".lines.a: must have a port of 1…65535 (got 'tcp://h:70000')
r.yaml:16:42: clusters.ok.enforce: must be true, false or a block of rules; write true: in YAML 1.2 yes is a text (got 'yes')
r.yaml:17:11: clusters.other.lines: has no backup line, which policy primary_backup needs; say role: backup on at least one line
r.yaml:19:14: agents.x.token: must be a text; write it in quotes (got ***)
r.yaml:19:34: agents.x.locality.zone: must be a name: letters, digits, '.', '_' and '-', not first, at most 63; names become line ids, cluster/line[@origin] (got 'a/b')
r.yaml:19:42: agents.x.tokn: unknown key; did you mean 'token'?
r.yaml:20:16: center.grpc: must be host:port or unix:/path; 127.0.0.1:7680 (port 0 takes any free one) (got '1.2.3.4')
r.yaml:20:36: center.journal: is empty; give it a value or remove the key (got nothing)
"""


def test_all_that_is_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    assert problems(EVERYTHING) == LISTING.splitlines()


@pytest.mark.parametrize(
    ("text", "place", "rule"),
    [
        ("", "r.yaml:1:1", "is empty"),
        ("# only a comment\n", "r.yaml:1:1", "is empty"),
        ("- a\n- b\n", "r.yaml:1:1", "is not a block of keys, but a list"),
        ("hello\n", "r.yaml:1:1", "is not a block of keys, but a single value"),
        ("mode: literal\n", "r.yaml:1:1", "clusters: is needed"),
        ("clusters: {}\n", "r.yaml:1:11", "clusters: must not be empty"),
        ("clusters: {a: {lines: []}}\n", "r.yaml:1:23", "must not be empty"),
        ("clusters: {a: {lines: {}}}\n", "r.yaml:1:23", "must not be empty"),
        ("clusters: {a: }\n", "r.yaml:1:15", "is empty"),
        ("clusters: [a]\n", "r.yaml:1:11", "must be a block of keys"),
        ("clusters: {a: {lines: tcp://h:1}}\n", "r.yaml:1:23", "must be a block of keys"),
        ("clusters: {a: {lines: {x: }}}\n", "r.yaml:1:27", "is empty"),
        ("a: [\n", "r.yaml:2:1", "is not YAML"),
        ("\x89PNG\r\n\x1a\n", "r.yaml:2:1", "holds bytes that are no text"),
        ("schema_version: 2\n" + SMALLEST, "r.yaml:1:17", "is newer than this release reads"),
        ("schema_version: 0\n" + SMALLEST, "r.yaml:1:17", "is no form this release can upgrade"),
        ("schema_version: '1'\n" + SMALLEST, "r.yaml:1:17", "must be 1"),
    ],
)
def test_what_is_no_document_gets_one_clear_line(text: str, place: str, rule: str) -> None:
    [only] = problems(text)

    assert only.startswith(f"{place}: ")
    assert rule in only
    assert "\n" not in only


def cluster(settings: str, *, lines: str = "{a: 'tcp://h:1', b: 'tcp://h:2'}") -> str:
    return f"clusters: {{c: {{lines: {lines}, {settings}}}}}\n"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("policy: nearest", "clusters.c.policy: must be weighted or primary_backup or ab_groups"),
        ("policy: [primary_backup, ab_groups]", "must begin with ab_groups"),
        ("policy: [weighted, primary_backup]", "has weighted above another policy"),
        ("policy: [weighted, weighted]", "names a policy twice"),
        ("policy: []", "must not be empty"),
        ("policy: ab_groups", "has no reserve line, which policy ab_groups needs"),
        ("patience: {failed: 0}", "clusters.c.patience.failed: must be at least 1"),
        ("patience: {failed: 2.5}", "must be a whole number"),
        ("patience: {failed: '3'}", "must be a whole number"),
        ("judge: {tick: 0s}", "must be at least 500ms"),
        ("judge: {vote_share: 100%}", "must be less than 100%"),
        ("judge: {fresh: .inf}", "must be a number"),
        ("judge: {fresh: 1e999}", "finite"),
        ("limits: {p95: 100ms}", "must be a block or ignore"),
        (
            "limits: {p95: {degraded: 600ms}}",
            "limits.p95.degraded: must be at most failed, 500ms (default); say failed too",
        ),
        ("limits: {p95: {exit: 300ms}}", "limits.p95.exit: must be at most degraded, 200ms (default)"),
        ("limits: {loss: {degraded: 0.01%}}", "must be at least 0.1%"),
        (
            "limits: {latency: ignore}",
            "limits.latency: unknown key; known here: loss, timeout, p95, ewma, jitter, errors",
        ),
        (
            "circuit_breaker: {cooldown_multiplier: 2, half_open: {cooldown_multiplier: 2}}",
            "stands here and under half_open",
        ),
        ("recovery: {}, circuit_breaker: {recovery: {}}", "clusters.c.recovery: stands here and under circuit_breaker"),
        ("recovery: {step_ratios: [0.1, 0.1, 1]}", "must rise from step to step"),
        ("recovery: {step_ratios: [0.1, 0.5]}", "must end with 1.0"),
        (
            "circuit_breaker: {recovery: {step_ratios: [0.5, 0.1, 1]}}",
            "circuit_breaker.recovery.step_ratios: must rise",
        ),
        ("circuit_breaker: {cooldown_seconds: 60s}", "must be a number"),
        ("circuit_breaker: {cooldown_seconds: 60, max_cooldown_seconds: 30}", "must be at least cooldown_seconds, 60"),
        ("circuit_breaker: {half_open: {min_success_requests: 2000}}", "must be at least min_success_requests, 2000"),
        ("circuit_breaker: {half_open: {traffic_ratio: 5}}", "did you mean 5%?"),
        ("circuit_breaker: {half_open: {recovery: {}}}", "it belongs under"),
        ("local_breaker: {open: 2m}", "must be at least open, 2m"),
        ("probes: {tcp: }", "is empty; write 5s, a block, or off"),
        ("probes: {tcp: never}", "must be a duration"),
        ("probes: {tcp: off}", "is probed by nothing"),
        ("probes: {http: {path: healthz}}", "holds characters that are not allowed here"),
        ("probes: {http: {method: FETCH}}", "must be GET or HEAD or OPTIONS or POST"),
        ("probes: {http: {headers: {Host: x}}}", "must not set Host"),
        ("probes: {http: {tls: maybe}}", "must be true or false"),
        ("probes: {dns: {name: h, type: BOGUS}}", "probes.dns.type: must be one of A, "),
        ("probes: {dns: {name: h, rcode: OOPS}}", "must be one of NOERROR"),
        ("class: batch", "must be rpc or bulk or long_haul"),
    ],
)
def test_a_wrong_setting_is_told_with_its_rule(settings: str, expected: str) -> None:
    found = problems(cluster(settings))

    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("{a: {to: 'tcp://h:1', role: primary}, b: 'tcp://h:2'}", "has no meaning: primary; policy is weighted"),
        ("{a: {to: 'tcp://h:1', weight: 0}}", "must be at least 1"),
        ("{a: {to: 'tcp://h:1', role: main}}", "must be primary or backup or traffic or reserve"),
        ("{a: {to: 'tcp://h:1', source: eth0}}", "must be an IP address"),
        ("{a: {to: 'tcp://h:1', interface: 'a/b'}}", "holds characters that are not allowed here"),
        ("{'a@b': 'tcp://h:1'}", "must be a name"),
        ("{'a/b': 'tcp://h:1'}", "must be a name"),
        ("[5]", "must be a text; write it in quotes"),
        ("{a: {too: 'tcp://h:1'}}", "did you mean 'to'?"),
    ],
)
def test_a_wrong_line_is_told_with_its_rule(lines: str, expected: str) -> None:
    found = problems(f"clusters: {{c: {{lines: {lines}}}}}\n")

    assert any(expected in problem for problem in found), found


def test_roles_of_one_pair_exclude_each_other() -> None:
    lines = "{a: {to: 'tcp://h:1', role: [primary, backup]}, b: {to: 'tcp://h:2'}}"

    assert problems(cluster("policy: primary_backup", lines=lines)) == [
        "r.yaml:1:51: clusters.c.lines.a.role: cannot be both primary and backup (got a list)"
    ]


def test_a_zone_without_agents_is_told_with_the_zone_that_was_meant() -> None:
    lines = "{a: {to: 'tcp://h:1', from: [az1, az-2]}}"

    found = problems(
        f"clusters: {{c: {{lines: {lines}}}}}\nagents: {{x: {{locality: {{zone: az1}}}}, y: {{locality: {{zone: az2}}}}}}\n"
    )

    assert found == [
        "r.yaml:1:51: clusters.c.lines.a.from: names the zone az-2, where no agent stands; did you mean az2? (got a list)"
    ]


def test_a_zone_needs_named_agents_for_its_quorum() -> None:
    (found,) = problems(cluster("", lines="{a: {to: 'tcp://h:1', from: az1}}"))

    assert "names a zone, but the document names no agents" in found


def test_the_two_servers_of_a_center_need_two_addresses() -> None:
    assert "is the address of center.grpc too" in problems(SMALLEST + "center: {grpc: 'h:1', http: 'h:1'}\n")[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            cluster("priority: 1", lines="{a: 'tcp://h:1', b: 'tcp://h:1'}"),
            "r.yaml:1:43: clusters.c.lines.b: goes the same way as a (r.yaml:1:27); give it another via or source, or drop it",
        ),
        (cluster("judge: {tick: 2s}"), "is shorter than judge.heartbeat, 10s: a report counts more than once"),
        (cluster("probes: {dns: 60s}", lines="['tcp://10.0.0.1:1']"), "fits no line of this cluster"),
        (
            cluster("probes: {icmp: 5s}", lines="{a: {to: 'tcp://h:1', via: 'socks5://p:1'}, b: 'tcp://h:2'}"),
            "clusters.c.lines.a.via: leaves this line without its icmp probe: echo requests do not go through a proxy",
        ),
        (
            cluster("probes: {passive: 1s}", lines="{a: {to: 'tcp://h:1', via: 'socks5://p:1'}, b: 'tcp://h:2'}"),
            "clusters.c.lines.a.via: leaves this line without its passive probe: the kernel sees connections to the proxy",
        ),
    ],
)
def test_what_is_odd_but_not_wrong_is_a_warning(text: str, expected: str) -> None:
    [warning] = read(text).warnings

    assert expected in str(warning)


def test_a_family_that_a_proxy_would_choose_is_refused() -> None:
    [only] = problems(
        cluster(
            "priority: 1",
            lines="{a: {to: 'tcp://h:1', via: 'socks5://x:1', family: 6}, "
            "b: {to: 'tcp://h:1', via: ['socks5://x:1', 'http://p:1'], family: 6}, "
            "c: {to: 'tcp://[::1]:1', via: 'http://p:1', family: 6}}",
        )
    )

    assert (
        "clusters.c.lines.b.family: is the proxy's choice: it resolves the name; socks5:// hands it an address" in only
    )


@pytest.mark.parametrize("scheme", ["icmp", "udp"])
def test_a_line_whose_scheme_goes_through_no_proxy_is_refused_by_name(scheme: str) -> None:
    port = "" if scheme == "icmp" else ":7"
    [only] = problems(cluster("priority: 1", lines=f"[{{to: '{scheme}://h{port}', via: 'socks5://bob:geheim@p:1'}}]"))

    assert f"clusters.c.lines[0].via: cannot carry {scheme}://: " in only
    assert "do not go through a proxy; drop via, or watch a tcp:// port of the same machine" in only
    assert "geheim" not in only


def test_a_line_by_proxy_with_nothing_left_to_probe_it_is_refused() -> None:
    text = cluster("probes: {tcp: off, icmp: 5s}", lines="[{to: 'tcp://h:1', via: 'socks5://p:1'}]")

    assert any("is probed by nothing" in problem for problem in problems(text))


def test_a_chain_of_proxies_is_a_list_with_secrets_in_it() -> None:
    text = cluster(
        "priority: 1",
        lines="[{to: 'tcp://h:1', via: ['socks5://a:1', 'http://bob:${env:PW}@b:2']}]",
    )
    document = read(text, environ={"PW": "p@,w"})
    plan = reach.plan(document, agent="x", locality=Locality(), number=1)

    assert plan.lines[0].via == "socks5://a:1,http://bob:p%40%2Cw@b:2"
    assert reach.lines(document, "c")[0].outbound == "socks5://a:1,http://b:2"


def test_a_wrong_cluster_hides_nothing_of_another() -> None:
    found = problems(
        "clusters:\n  a: {lines: ['tcp://h:1'], polcy: x}\n  b: {lines: ['tcp://h:1'], policy: primary_backup}\n"
        "  c: {policy: weighted}\n  d: {lines: ['tcp://h:1'], recovery: {step_ratios: [0.5]}}\n"
    )

    assert [problem.partition(": ")[0] for problem in found] == [
        "r.yaml:2:29",
        "r.yaml:3:7",
        "r.yaml:4:3",
        "r.yaml:5:53",
    ]


def test_a_wrong_block_hides_nothing_of_another_block() -> None:
    found = problems(cluster("limits: {loss: {degraded: 6%}}, circuit_breaker: {half_open: {traffic_ratio: 0}}"))

    assert [problem.split(": ")[1] for problem in found] == [
        "clusters.c.limits.loss.degraded",
        "clusters.c.circuit_breaker.half_open.traffic_ratio",
    ]


@pytest.mark.parametrize(
    "settings", ["policy: primary_backup, probes: {tcp: 5}", "policy: primary_backup, preset: quik", "policy: nearest"]
)
def test_what_may_follow_from_another_mistake_is_not_told(settings: str) -> None:
    assert len(problems(cluster(settings))) == 1


# ---------------------------------------------------------------------------------------------------------- secrets

SECRETS = """\
clusters:
  c:
    probes: {http: {headers: {Authorization: "Bearer ${env:TOKEN}"}}}
    lines: {a: {to: "http://h/", via: "socks5://bob:${env:PW}@p:1080"}}
agents: {x: {token: "${file:/run/token}"}}
center: {token: "${env:TOKEN}"}
"""


def test_references_are_filled_in_after_validation() -> None:
    document = read(SECRETS, environ={"TOKEN": "t0ken", "PW": "p@ss/word"}, files={"/run/token": "sesame"})
    [line] = reach.plan(document, agent="x", locality=reach.locality_of(document, "x"), number=1).lines
    agent_token, center_token = document.agents["x"].token, document.center.token

    assert agent_token is not None
    assert agent_token.get_secret_value() == "sesame"
    assert center_token is not None
    assert center_token.get_secret_value() == "t0ken"
    assert line.via == "socks5://bob:p%40ss%2Fword@p:1080"
    assert [probe.options.get("headers") for probe in line.probes] == [None, "Authorization: Bearer t0ken"]


def test_secrets_are_not_in_what_is_shown_or_kept() -> None:
    document = read(SECRETS, environ={"TOKEN": "t0ken", "PW": "geheim"}, files={"/run/token": "sesame"})
    kept = f"{document!r} {document.model_dump_json()} {reach.lines(document, 'c')} {document.warnings}"

    assert not [secret for secret in ("t0ken", "geheim", "sesame") if secret in kept]
    assert reach.lines(document, "c")[0].outbound == "socks5://p:1080"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${env:MISSING}", "refers to the environment variable MISSING, which is not set; export it before the start"),
        ("${file:/nowhere}", "refers to the file /nowhere"),
        ("${file:relative}", "refers to nothing known; write ${env:NAME} or ${file:/absolute/path}"),
        ("${vault:x}", "refers to nothing known"),
        ("${}", "refers to nothing known"),
    ],
)
def test_a_reference_to_nothing_is_told_and_masked(value: str, expected: str) -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    with pytest.raises(ConfigError) as caught:
        reach.read(SMALLEST + f'center: {{token: "{value}"}}\n', name="r.yaml", secret_file=missing)

    [problem] = caught.value.problems
    assert expected in str(problem)
    assert str(problem).startswith("r.yaml:4:17: center.token: ")
    assert problem.value == "***"


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 40),
    ],
    ids=["a-pipe-without-a-writer", "a-device-without-an-end", "a-terabyte"],
)
def test_a_secrets_file_holds_nobody_up(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(path := tmp_path / "secret")

    with pytest.raises(ConfigError, match="which is no text, no file or too large"):
        reach.read(SMALLEST + f'center: {{token: "${{file:{path}}}"}}\n', name="r.yaml")


def test_a_reference_where_none_is_read_is_told() -> None:
    [only] = problems(cluster("priority: 1", lines="{a: {to: 'tcp://h:1', provider: '${env:HOME}'}}"))

    assert (
        "holds a reference where none is read; only via, headers, passwords, tokens and logins of redis:// are filled in"
        in only
    )


@pytest.mark.parametrize("key", ["tokn", "passwrd", "geheim"])
def test_the_value_of_an_unknown_key_is_not_printed(key: str) -> None:
    [only] = problems(SMALLEST + f"center: {{{key}: sesame}}\n")

    assert "sesame" not in only


# ------------------------------------------------------------------------------------------------------- any text


@given(
    st.lists(
        st.sampled_from(
            [
                "clusters:",
                "  a:",
                "    lines:",
                "      - tcp://h:1",
                "    lines: [",
                "  - x",
                "a: &b [*b]",
                "? x",
                "agents:",
                "  b: {}",
                "x",
            ]
        ),
        max_size=8,
    )
)
def test_any_document_is_read_or_refused_with_places(parts: list[str]) -> None:
    found = refusal("\n".join(parts))

    assert all(problem.place.startswith("r.yaml:") and "\n" not in str(problem) for problem in found)


def refusal(text: str) -> tuple[Problem, ...]:
    try:
        reach.read(text, name="r.yaml")
    except ConfigError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    "text",
    [
        '"a\\e[31m\\nb": 1',
        'clusters: {"a\\e[31m\\nb": {lines: ["tcp://a:1"]}}',
        'clusters: {a: {lines: ["tcp://a\\e[2J\\r\\nb:1"]}}',
        'clusters: {a: {lines: ["tcp://a:1"], policy: "\\x9b31m\\u2028\\u202e\\nweighted"}}',
        'clusters: {a: {lines: ["tcp://a:1"], "preset\\n": quick}}',
        'clusters: {a: {lines: {"b\\n\\e]0;x\\a": "tcp://a:1"}}}',
        'agents: {"x\\ny": {token: "a\\nb", locality: {zone: "q\\n"}}}\nclusters: {a: {lines: ["tcp://a:1"]}}',
        'version: "1\\n\\e[0m"\nclusters: {a: {lines: ["tcp://a:1"]}}',
        'clusters: {a: &x\\y\n, b: *"\\e"}',
        "clusters: {a: {lines: [tcp://a:1]}, a: {lines: [${env:X\\y}]}, ? [b\x85] : 1}",
    ],
)
def test_a_problem_is_one_line_that_steers_no_terminal(text: str) -> None:
    found = problems(text)

    assert found
    assert all(each.isprintable() for each in found), found


def test_what_is_escaped_can_still_be_told() -> None:
    (problem,) = problems('clusters: {a: {lines: ["tcp://a:1"], "pre\\e[1m\\nset": quick}}')

    assert problem.startswith('r.yaml:1:38: clusters.a."pre\\x1b[1m\\nset": unknown key')


@given(st.text(min_size=1), st.text())
def test_no_key_and_no_value_breaks_a_line(key: str, value: str) -> None:
    problem = Problem(place=f"{key}.yaml:1:1", path=key, value=repr(value), rule=f"is not {value}", hint=key)

    assert str(problem).isprintable()
