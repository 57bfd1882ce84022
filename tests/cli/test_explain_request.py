"""`reachline explain --request`: the way of a request through a bootstrap, as a user reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reachline.cli.main import main

MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
BOOTSTRAP = f"""\
static_resources:
  listeners:
  - name: in
    address: {{socket_address: {{address: 0.0.0.0, port_value: 80}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": {MANAGER}
          stat_prefix: ingress
          route_config:
            virtual_hosts:
            - name: shop
              domains: ["*.example"]
              retry_policy: {{retry_on: 5xx, num_retries: 2}}
              routes:
              - {{name: old, match: {{path: /old}}, redirect: {{path_redirect: /new}}}}
              - {{name: beta, match: {{prefix: /, headers: [{{name: x-beta, string_match: {{exact: "1"}}}}]}}, route: {{cluster: beta}}}}
              - name: cart
                match: {{prefix: /cart}}
                route: {{cluster: payments, prefix_rewrite: /v2/cart, timeout: 3s, hash_policy: [{{header: {{header_name: x-user}}}}]}}
          http_filters:
          - {{name: router, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}}}
  clusters:
  - {{name: beta, load_assignment: {{cluster_name: beta}}}}
  - name: payments
    lb_policy: RING_HASH
    load_assignment:
      cluster_name: payments
      endpoints:
      - lb_endpoints:
        - {{endpoint: {{address: {{socket_address: {{address: 10.0.0.1, port_value: 80}}}}}}}}
        - {{load_balancing_weight: 2, endpoint: {{address: {{socket_address: {{address: 10.0.0.2, port_value: 80}}}}}}}}
        - {{health_status: UNHEALTHY, endpoint: {{address: {{socket_address: {{address: 10.0.0.3, port_value: 80}}}}}}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "envoy.yaml"
    path.write_text(BOOTSTRAP)
    return str(path)


def told(capsys: pytest.CaptureFixture[str], file: str, request: str, *more: str) -> list[str]:
    assert main(["explain", "--request", request, "-f", file, *more]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_step_is_told_in_its_order(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, file, "GET http://shop.example/cart?x=1", "-H", "x-user: ann") == [
        "GET http://shop.example/cart?x=1",
        "listener   in on 0.0.0.0:80: it has port 80",
        "chain      the only one: http_connection_manager ingress",
        "host       shop: its domain *.example fits shop.example",
        'route      not "old": path /old',
        "           not \"beta\": header x-beta exact '1'; the request has none",
        '           "cart": the first that fits (prefix /cart)',
        "request    path /v2/cart?x=1, was /cart?x=1",
        "times      3 s for all",
        "retries    2 more after 5xx",
        "cluster    payments, STATIC: 3 endpoints",
        "key        0x0b41beba40346ebe, of what the route's hash_policy names",
        "endpoints  10.0.0.1:80  healthy    weight 1  priority 0  32%  <- this one",
        "           10.0.0.2:80  healthy    weight 2  priority 0  68%",
        "           10.0.0.3:80  unhealthy  weight 1  priority 0  0%",
        "pick       10.0.0.1:80: ring_hash, its place on the ring by the key",
    ]


@pytest.mark.parametrize(
    ("request_", "last"),
    [
        ("http://shop.example/old?a", "answer     301, location http://shop.example/new?a"),
        ("http://shop.example/else", "           none of 3 fits: 404"),
        ("http://elsewhere/", "host       no virtual host has a domain for 'elsewhere': 404"),
        ("http://shop.example:80/", "host       no virtual host has a domain for 'shop.example:80': 404; shop has one for 'shop.example', without the port"),
        ("https://shop.example:80/", "           it speaks plain text, and https does not: the connection fails"),
    ],
)  # fmt: skip
def test_where_a_way_ends_is_its_last_line(
    file: str, capsys: pytest.CaptureFixture[str], request_: str, last: str
) -> None:
    assert told(capsys, file, request_)[-1] == last


def test_headers_lead_elsewhere_and_an_empty_cluster_has_nobody(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, file, "GET http://shop.example/cart", "-H", "X-Beta: 1")

    assert said[-2:] == ["cluster    beta, STATIC: 0 endpoints", "pick       nobody: 503, no healthy upstream"]


def test_what_a_manager_makes_of_a_request_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "envoy.yaml"
    path.write_text(
        BOOTSTRAP.replace("ingress", "ingress\n          strip_any_host_port: true\n          merge_slashes: true")
    )
    said = told(capsys, str(path), "http://shop.example:80//cart", "-H", "x-envoy-max-retries: 7")

    assert said[3:7] == [
        "arrival    path /cart, was //cart",
        "           authority shop.example, was shop.example:80",
        "           from outside: without x-envoy-max-retries",
        "host       shop: its domain *.example fits shop.example",
    ]
    assert "retries    2 more after 5xx" in said


def test_the_same_as_json(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads("\n".join(told(capsys, file, "http://shop.example/cart", "-o", "json")))

    assert [each["about"] for each in found["steps"]][:3] == ["listener", "chain", "host"]
    assert [each["address"] for each in found["endpoints"]] == ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--request", "GET"], "--file: is needed by --request"),
        (["-f", "x.yaml"], "--request: is needed by --file"),
        (["a/b", "--request", "http://a/", "-f", "x.yaml"], "exclude each other"),
        ([], "is needed: a line, or --request"),
        (["--request", "GET /x", "-f", "FILE"], "is no request; write 'GET http://host:port/path?query'"),
        (["--request", "http://a:99999/", "-f", "FILE"], "is no request: Port out of range"),
        (["--request", "http://a/", "-f", "FILE", "-H", "nonsense"], "is no header; write 'name: value'"),
        (["--request", "http://a/", "-f", "FILE", "--from", "here"], "is no address"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    file: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code = main(["explain", *(file if each == "FILE" else each for each in arguments)])

    assert code == 2
    assert said in capsys.readouterr().err


def test_a_document_that_is_wrong_is_refused_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(BOOTSTRAP.replace("timeout: 3s", "timeout: 3"))

    code = main(["explain", "--request", "http://shop.example/", "-f", str(path)])

    assert code == 2
    assert "must be a duration in seconds" in capsys.readouterr().err
