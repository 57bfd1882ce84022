"""The browser's fixtures, for every test of the page."""

from __future__ import annotations

from tests.console.chromium import browser, charts, page

__all__ = ["browser", "charts", "page"]
