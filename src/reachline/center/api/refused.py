"""A request that gets an error answer, raised anywhere below a route and rendered in one place."""

from __future__ import annotations

from collections.abc import Mapping

from reachline.errors import ReachlineError

__all__ = ["RefusedError"]


class RefusedError(ReachlineError):
    """A request that gets an error answer."""

    def __init__(
        self, status: int, code: str, message: str, hint: str = "", *, extra: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.hint = hint
        self.extra = extra or {}
        """More fields of the answer's `error`, e.g. candidates."""
