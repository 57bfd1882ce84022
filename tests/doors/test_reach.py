"""Lines, plans, vantages, and what only a restart changes."""

from __future__ import annotations

import re

import pytest

from reachline.doors import reach
from reachline.doors.probe import ProbeSettings
from reachline.doors.probing import Probes
from reachline.doors.settings import Document
from reachline.errors import ConfigError
from reachline.model import Endpoint, Kind, Locality, Role
from reachline.talk import TABLE
from reachline.wire.frame import LinePlan, ProbePlan


def read(text: str) -> Document:
    return reach.read(text, name="r.yaml")


def planned(document: Document, *, agent: str = "a", zone: str = "") -> list[LinePlan]:
    return list(reach.plan(document, agent=agent, locality=Locality(zone=zone), number=3).lines)


def probes(target: str, settings: str = "{}", *, top: str = "") -> dict[Kind, ProbePlan]:
    [line] = planned(read(f"{top}\nclusters: {{c: {{lines: ['{target}'], probes: {settings}}}}}"))
    return {probe.kind: probe for probe in line.probes}


def test_a_line_carries_what_the_document_says() -> None:
    document = read(
        """
clusters:
  c:
    policy: primary_backup
    lines:
      a: {to: "tcp://10.0.0.1:443", role: primary, weight: 70, provider: p1, groups: [f1, f2], capacity: 600}
      b: {to: "https://b.example/x", role: backup, source: 10.0.0.3, interface: eth1, drained: true}
"""
    )

    a, b = reach.lines(document, "c")

    assert (a.id, a.base, a.provider, a.groups, a.capacity, a.drained) == ("c/a", 70, "p1", ("f1", "f2"), 600, False)
    assert a.endpoint == Endpoint(scheme="tcp", host="10.0.0.1", port=443, family=4)
    assert (set(a.roles), set(b.roles)) == ({Role.PRIMARY}, {Role.BACKUP})
    assert (a.outbound, b.outbound) == ("direct", "direct?source=10.0.0.3&interface=eth1")
    assert b.drained


def test_lines_that_leave_by_different_addresses_are_different_lines() -> None:
    lines = reach.lines(
        read(
            "clusters: {c: {lines: {a: {to: 'tcp://h:1', source: 10.0.0.1}, b: {to: 'tcp://h:1', source: 10.0.0.2}}}}"
        ),
        "c",
    )

    assert len({line.identity for line in lines}) == 2


ZONES = """
clusters:
  c:
    lines:
      near: {to: "tcp://h:1", from: [az1, az2]}
      any: tcp://h:2
  d:
    lines: {only: {to: "tcp://h:3", from: az2}}
agents:
  e1: {locality: {region: r, zone: az1}}
  e2: {locality: {region: r, zone: az2}}
  e3: {locality: {region: r, zone: az2}}
"""


def test_a_line_has_an_origin_for_every_zone_it_is_seen_from() -> None:
    lines = reach.lines(read(ZONES), "c")

    assert [(line.id, line.origin, sorted(line.vantages)) for line in lines] == [
        ("c/near@az1", "az1", ["e1"]),
        ("c/near@az2", "az2", ["e2", "e3"]),
        ("c/any", "", []),
    ]


@pytest.mark.parametrize(
    ("agent", "zone", "expected"),
    [
        ("e1", "", ["c/near@az1", "c/any"]),
        ("e2", "", ["c/near@az2", "c/any", "d/only@az2"]),
        ("e1", "az2", ["c/near@az1", "c/any"]),
        ("stranger", "az2", ["c/near@az2", "c/any", "d/only@az2"]),
        ("stranger", "az9", ["c/any"]),
        ("stranger", "", ["c/any"]),
    ],
)
def test_an_agent_watches_lines_without_origin_and_those_of_its_zone(
    agent: str, zone: str, expected: list[str]
) -> None:
    assert [line.line for line in planned(read(ZONES), agent=agent, zone=zone)] == expected


def test_who_votes_is_who_can_see() -> None:
    document = read(ZONES)

    assert reach.vantages(document, "c") == {"e1", "e2", "e3"}
    assert reach.vantages(document, "d") == {"e2", "e3"}
    assert reach.vantages(read("clusters: {c: {lines: [tcp://h:1]}}"), "c") == frozenset()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("tcp://h:1", {Kind.TCP: (5_000, 2_000, 5)}),
        ("http://h/", {Kind.TCP: (5_000, 2_000, 5), Kind.HTTP: (30_000, 2_000, 1)}),
        ("https://h/", {Kind.TCP: (5_000, 2_000, 5), Kind.HTTP: (30_000, 2_000, 1), Kind.TLS: (30_000, 30_000, 1)}),
        ("tls://h", {Kind.TCP: (5_000, 2_000, 5), Kind.TLS: (30_000, 30_000, 1)}),
        ("dns://10.0.0.53/a.b", {Kind.DNS: (5_000, 2_000, 5)}),
        ("icmp://h", {Kind.ICMP: (5_000, 2_000, 5)}),
        ("udp://h:7", {Kind.UDP: (5_000, 2_000, 5)}),
        ("grpc://h:1", {Kind.TCP: (5_000, 2_000, 5), Kind.GRPC: (30_000, 2_000, 1)}),
        ("grpcs://h", {Kind.TCP: (5_000, 2_000, 5), Kind.GRPC: (30_000, 2_000, 1), Kind.TLS: (30_000, 30_000, 1)}),
        ("redis://h", {Kind.TCP: (5_000, 2_000, 5), Kind.REDIS: (15_000, 2_000, 1)}),
        ("rediss://h", {Kind.TCP: (5_000, 2_000, 5), Kind.REDIS: (15_000, 2_000, 1), Kind.TLS: (30_000, 30_000, 1)}),
    ],
)
def test_a_scheme_has_its_probes_at_the_paces_of_the_source_document(
    target: str, expected: dict[Kind, tuple[int, int, int]]
) -> None:
    found = probes(target)

    assert {kind: (plan.interval_ms, plan.suspect_interval_ms, plan.burst) for kind, plan in found.items()} == expected


def test_a_kind_that_is_named_is_added_and_one_that_is_off_is_not() -> None:
    found = probes("https://h.example/", "{icmp: 10s, dns: {every: 60s}, tls: off, tcp: {every: 1s, burst: 2}}")

    assert found.keys() == {Kind.TCP, Kind.HTTP, Kind.DNS, Kind.ICMP}
    assert (found[Kind.TCP].interval_ms, found[Kind.TCP].burst, found[Kind.TCP].suspect_interval_ms) == (
        1_000,
        2,
        1_000,
    )
    assert found[Kind.DNS].suspect_interval_ms == 60_000


def test_a_preset_adds_no_kind() -> None:
    assert probes("tcp://h:1", top="preset: quick_recovery").keys() == {Kind.TCP}


def test_a_kind_of_the_top_level_is_left_out_where_it_does_not_fit() -> None:
    document = read("probes: {http: {path: /x}}\nclusters: {a: {lines: ['icmp://h']}, b: {lines: ['tcp://h:1']}}")

    assert [[probe.kind for probe in line.probes] for line in planned(document)] == [[Kind.ICMP], [Kind.TCP, Kind.HTTP]]


def test_a_dns_line_keeps_the_pace_that_is_said() -> None:
    found = probes("dns://10.0.0.53/a.b", "{dns: {every: 20s}}")[Kind.DNS]

    assert (found.interval_ms, found.burst) == (20_000, 5)


def test_options_travel_by_their_names_where_they_are_not_the_default() -> None:
    found = probes(
        "https://h/x",
        "{http: {expect: [200, 3xx], host: api, headers: {X-A: '1', X-B: '2'}, verify: false, method: HEAD}, tls: {sni: s}}",
    )

    assert found[Kind.HTTP].options == {
        "expect": "200,300-399",
        "host": "api",
        "headers": "X-A: 1\nX-B: 2",
        "verify": False,
        "method": "HEAD",
    }
    assert found[Kind.TLS].options == {"sni": "s"}
    assert found[Kind.TCP].options == {}


@pytest.mark.parametrize(
    ("written", "said"),
    [("'200-299, 404'", "200-299,404"), ("[200-299, 404]", "200-299,404"), ("2XX", "200-299"), ("204", "204")],
)
def test_statuses_are_written_in_one_text_or_a_list(written: str, said: str) -> None:
    assert probes("http://h", f"{{http: {{expect: {written}}}}}")[Kind.HTTP].options == {"expect": said}


@pytest.mark.parametrize("written", ["[]", "''", "²00", "true", "404-200", "[200, [404]]", "2.5"])
def test_what_is_no_status_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match="must be HTTP statuses of 100…599"):
        probes("http://h", f"{{http: {{expect: {written}}}}}")


def test_what_a_target_asks_for_is_checked_at_its_line() -> None:
    with pytest.raises(ConfigError, match=re.escape("clusters.a.lines.x: must be a DNS name")):
        read("clusters: {a: {lines: {w: {to: 'dns://10.0.0.2/a.b'}, x: {to: 'dns://10.0.0.2/a..b'}}}}")


def test_a_header_is_one_line_and_what_it_says_stays_secret() -> None:
    with pytest.raises(ConfigError, match="must be one line") as caught:
        probes("http://h", '{http: {headers: {A: "geheim\\nB: geheim"}}}')

    assert "geheim" not in str(caught.value)


def test_options_of_tls_stay_away_from_lines_without_it() -> None:
    said = "{redis: {ca: /ca.pem, min_tls: 1.3}, http: {verify: false, version: 2}, tcp: {sni: x}}"

    assert probes("redis://h", said)[Kind.REDIS].options == {}
    assert probes("rediss://h", said)[Kind.REDIS].options == {"ca": "/ca.pem", "min_tls": "1.3"}
    assert probes("http://h", said)[Kind.HTTP].options == {"version": "2"}
    assert probes("https://h", said)[Kind.HTTP].options == {"version": "2", "verify": False}
    assert probes("tcp://h:1", said)[Kind.TCP].options == {}


def test_what_is_said_of_one_service_is_not_asked_of_another() -> None:
    targets = "['tcp://h:1', 'redis://h', 'grpc://h:1', 'http://h', 'udp://h:7']"
    said = "{redis: 1s, grpc: 1s, http: 1s, udp: 1s}"
    [*lines] = planned(read(f"clusters: {{c: {{lines: {targets}, probes: {said}}}}}"))

    assert [{plan.kind for plan in line.probes} for line in lines] == [
        {Kind.TCP, Kind.HTTP},
        {Kind.TCP, Kind.REDIS},
        {Kind.TCP, Kind.GRPC},
        {Kind.TCP, Kind.HTTP},
        {Kind.UDP},
    ]


def test_secrets_of_every_kind_are_filled_in() -> None:
    said = "{redis: {password: '${env:PW}'}, grpc: {headers: {x-key: 'k-${env:PW}'}}}"
    document = reach.read(
        f"clusters: {{c: {{lines: ['redis://h', 'grpc://h:1'], probes: {said}}}}}", name="a", environ={"PW": "geheim"}
    )
    options = [probe.options for line in planned(document) for probe in line.probes if probe.kind is not Kind.TCP]

    assert options == [{"password": "geheim"}, {"headers": "x-key: k-geheim"}]


def test_a_login_in_a_lines_url_is_its_own_and_no_part_of_its_endpoint() -> None:
    text = """
clusters:
  c:
    lines: {a: "redis://:${env:PW}@h", b: {to: "redis://bob:p%40w@h:1"}, d: "redis://h:2"}
    probes: {redis: {user: u, password: base}}
"""
    document = reach.read(text, name="a", environ={"PW": "a/@b"})
    lines = planned(document)
    logins = [plan.options for line in lines for plan in line.probes if plan.kind is Kind.REDIS]

    assert logins == [{"password": "a/@b"}, {"user": "bob", "password": "p@w"}, {"user": "u", "password": "base"}]
    assert [line.target for line in lines] == ["redis://h:6379", "redis://h:1", "redis://h:2"]
    assert "p%40w" not in repr(document)


@pytest.mark.parametrize("kind", list(TABLE))
def test_every_setting_of_a_kind_is_an_option_of_its_talk(kind: Kind) -> None:
    said = re.search(r"Options: ([\w, ;\n]+)\.", TABLE[kind].__doc__ or "")
    settings = set(type(Probes().of(kind)).model_fields) - set(ProbeSettings.model_fields)

    assert said
    assert settings <= set(re.findall(r"\w+", said[1]))


def test_a_name_of_one_family_is_a_line_of_its_own() -> None:
    document = read(
        "clusters: {c: {lines: {a: {to: 'tcp://h:1', family: 4}, b: {to: 'tcp://h:1', family: 6}, d: 'tcp://h:1'}}}"
    )

    assert [line.family for line in planned(document)] == [4, 6, 0]
    assert len({line.identity for line in reach.lines(document, "c")}) == 3
    assert document.warnings == ()


@pytest.mark.parametrize(("family", "ok"), [(4, False), (6, True)])
def test_the_family_of_an_address_cannot_be_another(family: int, ok: bool) -> None:
    text = f"clusters: {{c: {{lines: {{a: {{to: 'tcp://[::1]:1', family: {family}}}}}}}}}"

    if ok:
        assert planned(read(text))[0].family == 6
    else:
        with pytest.raises(ConfigError, match="says family 4 of an IPv6 address"):
            read(text)


def test_a_window_and_timeouts_are_the_agents_to_keep() -> None:
    document = read(
        "window: {samples: 100, max_age: 30s, alpha: 0.4}\nclusters: {c: {lines: ['tcp://h:1'], probes: {tcp: {every: 1s, timeout: 500ms, tail: 1s}}}}"
    )
    [line] = planned(document)
    [probe] = line.probes

    assert line.alpha_milli == 400
    assert (probe.window, probe.max_age_ms, probe.timeout_ms, probe.patience_ms) == (100, 30_000, 500, 1_000)


def test_the_heartbeat_keeps_the_pace_of_the_fastest_cluster() -> None:
    document = read("clusters: {a: {lines: ['tcp://h:1'], preset: quick_recovery}, b: {lines: ['tcp://h:2']}}")

    plan = reach.plan(document, agent="a", locality=Locality(), number=9)

    assert (plan.heartbeat_ms, plan.number) == (2_000, 9)


def test_only_the_center_needs_a_restart() -> None:
    old = read("clusters: {c: {lines: ['tcp://h:1']}}")
    new = read(
        "clusters: {c: {lines: ['tcp://h:2'], preset: high_stability}}\nagents: {x: {}}\ncenter: {http: '127.0.0.1:1', journal: /j}"
    )

    assert reach.changes(old, new) == ("center.http", "center.journal")
    assert reach.changes(old, old) == ()


TLS = "tls: {certificate: c.pem, key: k.pem}"
ALL_TOKENS = "agents: {x: {token: a}, y: {token: b}}"


@pytest.mark.parametrize(
    ("center", "agents", "expected"),
    [
        ("{grpc: '127.0.0.1:1', http: 'localhost:2'}", "", []),
        ("{grpc: 'unix:/x', http: '[::1]:2'}", "", []),
        (
            "{http: '0.0.0.0:2'}",
            "",
            ["center.http: is reachable from other machines, but has no TLS and no authentication"],
        ),
        ("{http: '0.0.0.0:2', token: t}", "", ["has no TLS;"]),
        (f"{{http: '0.0.0.0:2', {TLS}}}", "", ["has no authentication"]),
        (f"{{http: '0.0.0.0:2', token: t, {TLS}}}", "", []),
        (f"{{grpc: '10.0.0.1:2', {TLS}}}", ALL_TOKENS, []),
        (f"{{grpc: '10.0.0.1:2', {TLS}}}", "agents: {x: {token: a}, y: {}}", ["center.grpc: is reachable"]),
        ("{grpc: '10.0.0.1:2', tls: {certificate: c, key: k, client_ca: ca}}", "", []),
        ("{grpc: '0.0.0.0:1', http: '0.0.0.0:2'}", "", ["center.grpc", "center.http"]),
        ("{grpc: '0.0.0.0:1', http: '0.0.0.0:2', insecure: true}", "", []),
    ],
)
def test_a_public_address_needs_tls_and_tokens(center: str, agents: str, expected: list[str]) -> None:
    document = read(f"clusters: {{c: {{lines: ['tcp://h:1']}}}}\ncenter: {center}\n{agents}")

    found = refusals(document)

    assert len(found) == len(expected)
    assert all(part in problem for part, problem in zip(expected, found, strict=True))


def refusals(document: Document, *, insecure: bool = False, http: str = "") -> list[str]:
    try:
        reach.refuse_exposed(document, insecure=insecure, http=http)
    except ConfigError as error:
        return list(map(str, error.problems))
    return []


def test_an_option_may_open_the_address_and_must_say_so() -> None:
    document = read("clusters: {c: {lines: ['tcp://h:1']}}")

    assert refusals(document, http="0.0.0.0:80")[0].startswith("r.yaml:")
    assert refusals(document, http="0.0.0.0:80", insecure=True) == []


SKETCH = """\
schema_version: 1
mode: literal                        # literal | fast
clusters:
  payments:
    preset: default                  # quick_recovery | default | high_stability
    class: rpc                       # rpc | bulk: whose idea of slow
    priority: 10                     # business priority, for the order across regions
    policy: primary_backup           # weighted | primary_backup | ab_groups, or stacked
    limits: {p95: {degraded: 100ms, exit: 80ms}}
    probes: {tcp: 5s, http: {every: 30s, path: /healthz, expect: 200}, dns: 60s}
    lines:
      az2-dedicated: {to: "tcp://10.20.30.40:443", role: primary, weight: 100, provider: p1, groups: [fibre-7]}
      az2-vpn: {to: "tcp://10.20.30.40:443", via: "socks5://10.0.0.9:1080", role: backup, provider: p2}
circuit_breaker:                     # exactly the block of the source document, key by key
  cooldown_seconds: 60
  half_open: {traffic_ratio: 0.05, min_window_seconds: 30, min_success_requests: 200, max_success_requests: 1000,
              fail_threshold: 3, cooldown_multiplier: 2.0}
  recovery: {step_ratios: [0.05, 0.1, 0.2, 0.4, 0.6, 1.0], step_interval_seconds: 30}
agents:
  edge-03: {locality: {region: r1, zone: az1}, sources: [10.0.0.3, 10.0.1.3]}
center: {grpc: "127.0.0.1:7600", http: "127.0.0.1:7680", journal: ./journal}
"""


def test_the_sketch_of_the_design_is_a_document() -> None:
    document = read(SKETCH)

    assert [line.outbound for line in reach.lines(document, "payments")] == ["direct", "socks5://10.0.0.9:1080"]
    assert document.agents["edge-03"].sources == ("10.0.0.3", "10.0.1.3")
    assert document.clusters["payments"].priority == 10
    assert [warning.path for warning in document.warnings] == ["clusters.payments.probes.dns"]
