"""The reference page of the document, written from the settings: whoever changes a key changes the page.

python -m reachline.doors.page > docs/reference/config.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from pydantic import BaseModel

from reachline.doors.addresses import SCHEMES
from reachline.doors.effective import effective, key_of
from reachline.doors.limits import Limits, RateLimit, RttLimit
from reachline.doors.listening import Listen, Retries
from reachline.doors.planning import kinds_of
from reachline.doors.presets import CLASSES, LONG_HAUL, MODES, PRESETS
from reachline.doors.probing import Probes
from reachline.doors.reference import MODELINE, key, text, unit_of, values
from reachline.doors.settings import (
    AgentSettings,
    Center,
    CircuitBreaker,
    Cluster,
    Document,
    LineSettings,
    LocalitySettings,
    MeshSettings,
    RegionSettings,
    Tls,
    Tunable,
)
from reachline.model import Endpoint

__all__ = ["markdown"]

_INTRO: Final = f"""# Configuration

One YAML document. Three lines are enough, everything else has a default:

```yaml
clusters:
  payments:
    lines: [https://a.example/healthz, https://b.example/healthz]
```

`reachline config check FILE` says all that is wrong with it at once, each problem with file:line:column.
`reachline config show FILE` prints every value in force and where it was said.
`reachline config schema > reachline.schema.json` and, as the first line of the document, `{MODELINE}` make an editor
complete and check while you write.

This page is written from the settings themselves (`make docs` and a test hold it to them).

- **Durations** have a unit: `100ms`, `5s`, `1m30s`, `2h`, `7d`. Keys that end in `_seconds` are the source document's own and
  take a bare number. **Shares** are `0.05` or `5%`. **Sizes** are `2GB` or `512MiB`.
- **YAML 1.2**: only `true` and `false` are truth values; `yes`, `on`, `NO`, `1:30` are texts, `012` is twelve. Keys may not
  stand twice. Anchors and aliases work, merge keys (`<<`) and tags do not.
- **Line ids** are `cluster/line[@origin]`, the same in CLI, API, metrics and journal. Lines in a plain list are named after
  their host; the next of the same host gets its port, or else a number.
- **Secrets**: tokens, header values and the password in a `via` or `redis://` URL may be `${{env:NAME}}` or `${{file:/path}}`. They are filled in
  after the document was checked and are never shown, journalled or logged.
- **Reload**: a changed file is read again within a second and swapped whole, or refused whole and the old one stays.
  Keys under `center` take effect at the next start, and the log says so.
- **Precedence**: default < mode < preset < class < block at the top < key in a cluster.
"""

_NAMES: Final[Mapping[type[BaseModel], str]] = {
    Document: "The document",
    Cluster: "clusters.NAME",
    LineSettings: "clusters.NAME.lines.NAME",
    Listen: "clusters.NAME.listen",
    Retries: "clusters.NAME.listen.retries",
    RegionSettings: "regions.NAME",
    AgentSettings: "agents.NAME",
    LocalitySettings: "agents.NAME.locality",
    MeshSettings: "mesh",
    Center: "center",
    Tls: "center.tls",
}


def markdown() -> str:
    """The whole page."""
    blocks = [
        _INTRO,
        _block(_NAMES[Document], Document, skip=Tunable.model_fields),
        _block(_NAMES[Cluster], Cluster, skip=Tunable.model_fields),
        _block(_NAMES[LineSettings], LineSettings),
        _schemes(),
        _block(_NAMES[Listen], Listen),
        _block(_NAMES[Retries], Retries),
        _block("For all clusters, or for one", Tunable),
        *_tunable(),
        _beside(
            "Modes",
            "A mode is a way of judging ([what each decides by](../concepts/decisions.md)), and comes with a pace.",
            {name: dict(_effective(mode=name)) for name in MODES},
        ),
        _beside(
            "Presets",
            "A preset is a consistent set; what it does not name is the default.",
            {name: dict(_effective(preset=name)) for name in PRESETS},
        ),
        _classes(),
        *(
            _block(_NAMES[model], model)
            for model in (RegionSettings, AgentSettings, LocalitySettings, MeshSettings, Center, Tls)
        ),
    ]
    return "\n".join(blocks)


def _block(title: str, model: type[BaseModel], *, skip: Iterable[str] = (), level: int = 2) -> str:
    """A heading, what the block is for, and its keys."""
    skipped = frozenset(skip)
    about = (model.__doc__ or "").strip().replace("\n    ", " ")
    rows = [row for name, row in _keys(model) if name not in skipped]
    return "\n".join([f"{'#' * level} {title}", "", about, "", *_table(("key", "default", "meaning"), rows), ""])


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, tuple[str, str, str]]]:
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True, validated_data={})
        if field.is_required():
            shown = "*needed*"
        elif isinstance(default, BaseModel):
            shown = "*a block*"
        elif default in ("", None, (), {}):
            shown = "–"
        else:
            shown = f"`{text(default, unit_of(field))}`"
        yield name, (f"`{key_of(model, name)}`", shown, field.description or "")


def _tunable() -> Iterator[str]:
    """Every block that may stand in two places, and the blocks in it."""
    for name, field in Tunable.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield _limits() if kind is Limits else _block(key_of(Tunable, name), kind, level=3)
            if kind in {CircuitBreaker, Probes}:
                yield from _inner(key_of(Tunable, name), kind)


def _inner(name: str, model: type[BaseModel]) -> Iterator[str]:
    for field_name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield _block(f"{name}.{key_of(model, field_name)}", field.annotation, level=4)


def _limits() -> str:
    fields = ("degraded", "exit", "failed", "failed_exit", "samples")
    rows = []
    for name, field in Limits.model_fields.items():
        limit = field.default
        shown = [text(getattr(limit, each), unit_of(type(limit).model_fields[each])) for each in fields]
        rows.append((f"`{name}`", *(f"`{each}`" for each in shown), field.description or ""))
    about = (
        "Where each metric turns a line degraded or failed, and where it turns back. The worst metric decides.\n\n"
        f"{(RateLimit.__doc__ or '').strip()} `never` in place of a limit: the metric does not reach that zone; `ignore` in "
        "place of the block: it has no say. Beside these, a line of which none of the newest three rounds connected is failed "
        "until three did; that one has no numbers."
    )
    keys = [row for _, row in _keys(RttLimit)]
    return "\n".join(
        [
            "### limits",
            "",
            about,
            "",
            *_table(("metric", *fields, "of"), rows),
            "",
            *_table(("key", "meaning"), [(name, meaning) for name, _, meaning in keys]),
            "",
        ]
    )


def _schemes() -> str:
    found = effective(Document.model_validate({"clusters": {"a": {"lines": ["tcp://h:1"]}}}), "a")
    rows = []
    for scheme in SCHEMES:
        kinds = kinds_of(Endpoint(scheme=scheme, host="h", port=int(SCHEMES[scheme].has_port)), found)
        rows.append((f"`{scheme}://`", ", ".join(f"`{kind}`" for kind in kinds)))
    return "\n".join(
        [
            "### Schemes",
            "",
            "What a line is probed by unless `probes` says otherwise.",
            "",
            *_table(("scheme", "kinds"), rows),
            "",
        ]
    )


def _beside(title: str, about: str, columns: Mapping[str, Mapping[str, str]]) -> str:
    """What these differ in, side by side."""
    differing = [
        path
        for path in next(iter(columns.values()))
        if len({column[path] for column in columns.values()}) > 1 and path not in {"mode", "preset"}
    ]
    rows = [(f"`{path}`", *(f"`{column[path]}`" for column in columns.values())) for path in differing]
    return "\n".join([f"## {title}", "", about, "", *_table(("key", *columns), rows), ""])


def _classes() -> str:
    ordinary = dict(_effective())
    rows = []
    for name in CLASSES:
        for path, value in _effective(service_class=name):
            if value != ordinary[path] and path != "class":
                rows.append((f"`{name}`", f"`{path}`", f"`{value}`"))
    degraded, failed = (f"{milli / 1_000:g}" for milli in LONG_HAUL)
    about = (
        f"A class says whose idea of slow holds. `long_haul` moves P95 and EWMA to {degraded} (degraded) and {failed} times "
        "(failed) the line's own median at this hour of the last seven days, and jitter by as much, where that is above "
        "`limits`; until three hours are known, `limits` alone hold."
    )
    return "\n".join(["## Classes", "", about, "", *_table(("class", "key", "value"), rows), ""])


def _effective(*, mode: str = "literal", preset: str = "default", service_class: str = "") -> Iterator[tuple[str, str]]:
    said = {"mode": mode, "preset": preset} | ({"class": service_class} if service_class else {})
    document = Document.model_validate({"clusters": {"a": {"lines": ["tcp://h:1"]} | said}})
    yield from ((key(path), value) for path, value in values(effective(document, "a").settings))


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, tuple("---" for _ in head), *rows)]


if __name__ == "__main__":
    sys.stdout.write(markdown())
