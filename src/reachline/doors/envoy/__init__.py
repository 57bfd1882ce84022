"""The envoy door: an Envoy bootstrap, or a list of its clusters, becomes settings and rules; states become Envoy's `/clusters`.

settings = read(text, name="envoy.yaml")
rules(settings, "payments").policy
show(hosts)

Pure, and of the standard library alone but for YAML text, which needs PyYAML; JSON text and plain values do not.
"""

from __future__ import annotations

from reachline.doors.envoy.bootstrap import read
from reachline.doors.envoy.ruling import Rules, rules
from reachline.doors.envoy.shown import Flag, Host, show
from reachline.doors.envoy.values import (
    Budget,
    CheckSettings,
    Cluster,
    Dns,
    Eds,
    Settings,
    Thresholds,
    Type,
)

__all__ = [
    "Budget",
    "CheckSettings",
    "Cluster",
    "Dns",
    "Eds",
    "Flag",
    "Host",
    "Rules",
    "Settings",
    "Thresholds",
    "Type",
    "read",
    "rules",
    "show",
]
