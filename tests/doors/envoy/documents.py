"""Documents of the envoy door, small and whole, and what changes one."""

from __future__ import annotations

from typing import Any

CHECK: dict[str, Any] = {"timeout": "1s", "interval": "5s", "unhealthy_threshold": 3, "healthy_threshold": 2}
POLICIES = "type.googleapis.com/envoy.extensions.load_balancing_policies."


def endpoint(port: int = 80, address: str = "10.0.0.1", **more: Any) -> dict[str, Any]:
    """One lb_endpoint."""
    where = {"socket_address": {"address": address, "port_value": port}}
    return {"endpoint": {"address": where}, **more}


def assignment(*endpoints: dict[str, Any], **more: Any) -> dict[str, Any]:
    """One group without a locality."""
    return {"cluster_name": "c", "endpoints": [{"lb_endpoints": list(endpoints)}], **more}


def cluster(**more: Any) -> dict[str, Any]:
    """A cluster of one endpoint; a field that is None is left out."""
    found = {"name": "c", "load_assignment": assignment(endpoint())} | more
    return {name: value for name, value in found.items() if value is not None}


def followed(address: str = "a.example", **fields: Any) -> dict[str, Any]:
    """A cluster of names by `envoy.cluster.dns`."""
    config = {"@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster", **fields}
    custom = {"name": "envoy.cluster.dns", "typed_config": config}
    return cluster(cluster_type=custom, load_assignment=assignment(endpoint(address=address)))


def checked(**more: Any) -> dict[str, Any]:
    """A cluster with an HTTP check; `more` are fields of it."""
    return cluster(health_checks=[CHECK | {"http_health_check": {"path": "/up"} | more}])


def balanced(kind: str, **more: Any) -> dict[str, Any]:
    """A cluster balanced by an extension."""
    typed = {"name": "p", "typed_config": {"@type": POLICIES + kind, **more}}
    return cluster(load_balancing_policy={"policies": [{"typed_extension_config": typed}]})


BOOTSTRAP = """\
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
node: {id: edge, cluster: edge}
cluster_manager:
  local_cluster_name: edge
  outlier_detection: {event_log_path: /var/log/outliers.log}
static_resources:
  listeners: [{name: whatever it is}]
  clusters:
  - name: edge
    load_assignment: {cluster_name: edge}
  - name: payments
    type: STATIC
    connect_timeout: 0.25s
    lb_policy: RING_HASH
    ring_hash_lb_config: {minimum_ring_size: 2048, hash_function: MURMUR_HASH_2}
    common_lb_config:
      healthy_panic_threshold: {value: 33.4}
      locality_weighted_lb_config: {}
      update_merge_window: 0s
      consistent_hashing_lb_config: {hash_balance_factor: 150}
    load_assignment:
      cluster_name: payments
      policy:
        overprovisioning_factor: 120
        weighted_priority_health: true
        endpoint_stale_after: 30s
        drop_overloads: [{category: lb, drop_percentage: {numerator: 5}}]
      endpoints:
      - locality: {region: r, zone: a, sub_zone: s}
        load_balancing_weight: 3
        lb_endpoints:
        - load_balancing_weight: 7
          health_status: DEGRADED
          metadata: {filter_metadata: {envoy.lb: {hash_key: one}}}
          endpoint:
            hostname: one.example
            address: {socket_address: {address: 10.0.0.1, port_value: 443}}
            health_check_config: {port_value: 8080, hostname: up.example}
        - endpoint:
            address: {socket_address: {address: '::1', port_value: 443}}
            health_check_config: {disable_active_health_check: true}
      - locality: {zone: b}
        priority: 1
        load_balancing_weight: 1
        lb_endpoints: [{endpoint: {address: {socket_address: {address: 10.0.0.2, port_value: 443}}}}]
    health_checks:
    - timeout: 0.5s
      interval: 5s
      unhealthy_threshold: 3
      healthy_threshold: 2
      unhealthy_edge_interval: 1s
      initial_jitter: 0.1s
      interval_jitter_percent: 10
      reuse_connection: false
      always_log_health_check_failures: true
      event_logger:
      - name: file
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink
          event_log_path: /var/log/checks.log
      http_health_check:
        path: /up
        host: checks.example
        method: POST
        send: {text: '6869'}
        receive: [{text: '6f6b'}, {binary: 'IQ=='}]
        expected_statuses: [{start: 200, end: 204}]
        retriable_statuses: [{start: 500, end: 600}]
        request_headers_to_add: [{header: {key: x-from, value: checks}}]
    outlier_detection:
      consecutive_5xx: 3
      interval: 1s
      base_ejection_time: 2s
      max_ejection_time: 60s
      max_ejection_time_jitter: 0.5s
      max_ejection_percent: 50
      split_external_local_origin_errors: true
      successful_active_health_check_uneject_host: false
      always_eject_one_host: true
      success_rate_stdev_factor: 1500
    circuit_breakers:
      thresholds:
      - {max_connections: 10, max_pending_requests: 11, max_requests: 12, max_retries: 13}
      - {priority: HIGH, retry_budget: {budget_percent: {value: 25}, min_retry_concurrency: 5}}
      per_host_thresholds: [{max_connections: 4}]
  - name: names
    type: STRICT_DNS
    dns_refresh_rate: 2s
    dns_failure_refresh_rate: {base_interval: 1s, max_interval: 10s}
    dns_jitter: 0.1s
    respect_dns_ttl: true
    dns_lookup_family: V4_PREFERRED
    typed_dns_resolver_config:
      name: envoy.network.dns_resolver.cares
      typed_config:
        '@type': type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig
        resolvers: [{socket_address: {address: 127.0.0.1, port_value: 5353}}]
    lb_policy: LEAST_REQUEST
    least_request_lb_config:
      choice_count: 3
      active_request_bias: {default_value: 0.5, runtime_key: bias}
      slow_start_config: {slow_start_window: 60s, aggression: {default_value: 2, runtime_key: a}, min_weight_percent: {value: 20}}
    load_assignment:
      cluster_name: names
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: db.example, port_value: 5432}}}}]}]
    health_checks:
    - timeout: 1s
      interval: 5s
      unhealthy_threshold: 1
      healthy_threshold: 1
      custom_health_check:
        name: envoy.health_checkers.redis
        typed_config: {'@type': type.googleapis.com/envoy.extensions.health_checkers.redis.v3.Redis, key: off}
  - name: assigned
    type: EDS
    eds_cluster_config: {service_name: assigned-v2, eds_config: {ads: {}, initial_fetch_timeout: 3s}}
  - name: watched
    type: EDS
    eds_cluster_config: {eds_config: {path_config_source: {path: /etc/eds.yaml}}}
"""
