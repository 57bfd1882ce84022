"""Everything Reachline raises on purpose. A failure of the network is data (`model.Failure`), never one of these."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ConfigError",
    "JournalError",
    "LocalProtocolError",
    "Overflow",
    "Problem",
    "ReachlineError",
    "RemoteProtocolError",
    "Shed",
    "one_line",
]


class ReachlineError(Exception):
    """The one to catch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a document: where, what stands there, which rule it breaks, what to do. As text always one line."""

    place: str
    """`file:line:column`, or the file alone."""
    path: str
    """Dotted path of the key, e.g. `clusters.payments.lines.a.to`."""
    value: str
    """What stands there, masked where it may be secret."""
    rule: str
    hint: str = ""

    def __str__(self) -> str:
        got = f" (got {self.value})" if self.value else ""
        hint = f"; {self.hint}" if self.hint else ""
        path = f"{self.path}: " if self.path else ""
        return one_line(f"{self.place}: {path}{self.rule}{hint}{got}")


def one_line(text: str) -> str:
    """The text with all that would break a line or steer a terminal escaped, as Python writes it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


class ConfigError(ReachlineError):
    """A document, an option or the environment asks for something that cannot be: all problems found, in order."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class LocalProtocolError(ReachlineError):
    """We, or a caller of ours, used a protocol wrongly."""


class RemoteProtocolError(ReachlineError):
    """A peer broke its protocol; the message names the field."""


class JournalError(ReachlineError):
    """A journal cannot be opened, read or continued."""


class Shed(ReachlineError):  # noqa: N818  an answer, not a failure
    """A call is refused, for what is left of all regions does not carry it: `share` (0…1) of the cluster's calls is admitted."""

    def __init__(self, cluster: str, priority: int, share: float) -> None:
        super().__init__(
            f"{cluster}: this call is shed; what is left carries {100 * share:.3g} % of this cluster's calls (priority {priority}). "
            "Every client is told the same, so trying again elsewhere does not help: answer without it, or come back later"
        )
        self.cluster, self.priority, self.share = cluster, priority, share


class Overflow(Shed):
    """A call is refused, for `limit` of this cluster's are under way in this process: as many as its `circuit_breakers` allow."""

    def __init__(self, cluster: str, limit: int) -> None:
        text = f"{cluster}: this call is refused: {limit} are under way here, and its circuit_breakers allow no more"
        ReachlineError.__init__(self, text)
        self.cluster, self.priority, self.share, self.limit = cluster, 0, 0.0, limit
