"""`watch` on a terminal: a live table, a detail page, sorting and filtering. Shows what `watch_state` knows, decides nothing.

The table has a slot for each target that the filter lets through; what stands in a slot is looked up when it is painted, and
only slots in sight are painted: 500 targets cost what 40 do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from reachline.cli.render import milliseconds, percent, style_of
from reachline.cli.watch_state import Bar, Sight
from reachline.cli.watch_text import BLOCKS, PLAIN, levels

__all__ = ["WatchApp", "spark"]

_EVERY: Final = 1.0
"""Seconds between two looks at what is in sight: a default interval; people do not read faster."""
_BARS: Final = 8, 30
"""Bars in the table's sparkline, on a narrow and on a wide terminal."""
_REASON: Final = 40
"""Columns left for the reason before the sparkline grows; the line under the table tells it in full."""
_FIGURE: Final = 8
_GAP: Final = "×"
_TO_ASCII: Final = str.maketrans({"–": "-", "−": "-", "×": "x", "…": "."})
_COLUMNS: Final = ("target", "state", "loss", "last", "ewma", "p50", "p95", "jitter", "clock", "history", "why")
_WORSE: Final = ("healthy", "unknown", "degraded", "unhealthy")
_ORDERS: Final[Mapping[str, Callable[[Sight], tuple[float, ...]]]] = {
    "as given": lambda _: (),
    "worst first": lambda sight: (-_WORSE.index(sight.state) if sight.state in _WORSE else 0, -(sight.loss or 0.0)),
    "slowest first": lambda sight: (-(sight.p95 or sight.p50 or sight.last or 0.0),),
    "most loss first": lambda sight: (-(sight.loss or 0.0), -sight.failed),
}
_HELP: Final = """\
[b]s[/b]      sort: as given, worst, slowest, most loss first
[b]/[/b]      show only targets that contain a text; Esc shows all
[b]Enter[/b]  one target in full; Esc goes back
[b]?[/b]      this page
[b]q[/b]      quit; the exit code says whether all were healthy

[b]state[/b] is judged by the center's rules, one round a tick.

[b]loss[/b] is packets lost of packets sent: a retransmitted SYN counts, though its connect succeeded.

[b]p95[/b] needs 20 answers. [b]clock[/b] says where an RTT comes from: tcp_info and rx_stamp are the kernel's own.

In [b]history[/b] a red gap is a round without an answer that counts, a yellow bar one that was late."""


def spark(bars: list[Bar], *, color: bool, blocks: bool) -> Text:
    """The bars as text; a gap is red background where there is colour, a cross (or x) where there is none."""
    text = Text(no_wrap=True)
    gap = " " if color else _GAP if blocks else "x"
    for bar, glyph in zip(bars, levels(bars, BLOCKS if blocks else PLAIN), strict=True):
        if bar.rtt is None:
            text.append(gap, "on red" if color else "")
        else:
            text.append(glyph, "yellow" if color and bar.late else "")
    return text


def _can_blocks() -> bool:
    return "utf" in (sys.stdout.encoding or "").lower()


class Page(ModalScreen[None]):
    """One page of text over the table, kept up to date."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,question_mark", "app.pop_screen", "back", show=False),
    ]
    CSS = "Page { align: center middle; } Page > VerticalScroll { width: 90%; max-width: 110; height: auto; max-height: 90%; border: round $primary; padding: 1 2; }"

    def __init__(self, text: Callable[[], Text]) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text(), id="page")

    def on_mount(self) -> None:
        """Look again as often as the table does."""
        self.set_interval(_EVERY, lambda: self.query_one("#page", Static).update(self._text()))


class WatchApp(App[None]):
    """The live table. `state` is asked for every target; `sight` (all that is known of one) and `history` (its bars) only for
    what is in sight, and for all of them where they are to be sorted by it.
    """

    TITLE = "reachline watch"
    ENABLE_COMMAND_PALETTE = False
    CSS = "DataTable { height: 1fr; } #find { display: none; height: 3; } #find.open { display: block; } #head, #why { height: 1; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "sort"),
        Binding("slash", "find", "filter", key_display="/"),
        Binding("enter", "open", "detail"),
        Binding("escape", "all", "show all", show=False),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
    ]

    def __init__(
        self,
        targets: tuple[str, ...],
        *,
        state: Callable[[str], str],
        sight: Callable[[str], Sight],
        history: Callable[[str], list[Bar]],
    ) -> None:
        super().__init__()
        self._targets, self._state, self._sight, self._history = targets, state, sight, history
        self._color = not os.environ.get("NO_COLOR")
        self._blocks = _can_blocks()
        self._order = next(iter(_ORDERS))
        self._shown: list[str] = list(targets)
        """The target in each slot."""
        self._painted: dict[int, tuple[Text, ...]] = {}
        """The cells of each slot as they were painted last."""
        self._bars = _BARS[0]

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield DataTable[Text](cursor_type="row", zebra_stripes=True)
        yield Static(id="why")
        yield Input(placeholder="part of a target", id="find")
        yield Footer()

    def on_mount(self) -> None:
        """Make the slots and begin to paint."""
        table = self._table()
        for name, width in self._widths(self.size.width).items():
            table.add_column(name, width=width)
        self._slots()
        table.focus()
        self.watch(table, "scroll_y", self._paint, init=False)
        # The table has no height yet, and so no slot in sight.
        self.call_after_refresh(self._paint)
        self.set_interval(_EVERY, self._tick)

    # -- keys --------------------------------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        """The next order."""
        orders = list(_ORDERS)
        self._order = orders[(orders.index(self._order) + 1) % len(orders)]
        self._arrange()
        self._tick()

    def action_find(self) -> None:
        """Ask for a part of a target's text."""
        find = self.query_one("#find", Input)
        find.add_class("open")
        find.focus()

    def action_all(self) -> None:
        """Close the filter and show every target again."""
        find = self.query_one("#find", Input)
        find.value = ""
        find.remove_class("open")
        self._table().focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while typing."""
        wanted = event.value.casefold()
        self._shown = [target for target in self._targets if wanted in target.casefold()]
        self._slots()

    def on_input_submitted(self) -> None:
        """Keep the filter, go back to the table."""
        self._table().focus()

    def on_data_table_row_selected(self) -> None:
        """Enter in the table."""
        self.action_open()

    def action_open(self) -> None:
        """One target in full."""
        if self._shown:
            target = self._shown[self._table().cursor_row]
            self.push_screen(Page(lambda: self._detail(target)))

    def action_help(self) -> None:
        """What the keys and columns mean."""
        self.push_screen(Page(lambda: Text.from_markup(_HELP)))

    # -- painting ----------------------------------------------------------------------------------------------------------

    def _table(self) -> DataTable[Text]:
        return self.query_one(DataTable)

    def _widths(self, width: int) -> dict[str, int]:
        """Of each column on a terminal so wide: the figures first, then the reason, then bars."""
        fixed = dict.fromkeys(_COLUMNS, _FIGURE) | {"target": min(max(map(len, self._targets)), 44), "state": 9}
        left = width - sum(fixed[name] + 2 for name in _COLUMNS if name not in {"history", "why"}) - 6
        self._bars = max(_BARS[0], min(_BARS[1], left - _REASON))
        return fixed | {"history": self._bars, "why": max(_REASON, left - self._bars)}

    def on_resize(self, event: Resize) -> None:
        """Another terminal size: other widths, and other slots in sight."""
        for column, width in zip(self._table().ordered_columns, self._widths(event.size.width).values(), strict=False):
            column.width = width
        self._painted.clear()
        self._table().refresh(layout=True)
        self.call_after_refresh(self._paint)

    def _slots(self) -> None:
        """As many rows as targets are shown; the cursor stays on its target where that is still shown."""
        table = self._table()
        missing = len(self._shown) - table.row_count
        for _ in range(missing):
            table.add_row(*(Text() for _ in _COLUMNS))
        for _ in range(-missing):
            table.remove_row(table.coordinate_to_cell_key(Coordinate(table.row_count - 1, 0)).row_key)
        self._painted.clear()
        self._arrange()
        self._tick()

    def _arrange(self) -> None:
        """Put the shown targets in order."""
        table = self._table()
        here = self._shown[table.cursor_row] if table.cursor_row < len(self._shown) else None
        given = [target for target in self._targets if target in set(self._shown)]
        key = _ORDERS[self._order]
        self._shown = given if self._order == "as given" else sorted(given, key=lambda target: key(self._sight(target)))
        if here in self._shown and self._shown.index(here) != table.cursor_row:
            table.move_cursor(row=self._shown.index(here), animate=False)

    def _tick(self) -> None:
        if self._order != "as given":
            self._arrange()
        seen = [self._state(target) for target in self._targets]
        states = {state: seen.count(state) for state in _WORSE}
        head = Text(f"{len(self._targets)} targets: " + ", ".join(f"{n} {state}" for state, n in states.items() if n))
        shown = "" if len(self._shown) == len(self._targets) else f", {len(self._shown)} shown"
        head.append(f"{shown}   sorted {self._order}", "dim" if self._color else "")
        self.query_one("#head", Static).update(head)
        self._paint()

    def on_data_table_row_highlighted(self) -> None:
        """The cursor moved."""
        self._tell()

    def _tell(self) -> None:
        """Why the target under the cursor stands as it does, in full."""
        row = self._table().cursor_row
        sight = self._sight(self._shown[row]) if row < len(self._shown) else None
        why = Text(f"{sight.target} is {sight.state}", no_wrap=True) if sight else Text()
        if sight and sight.reason:
            why.append(self._plain(f": {sight.reason}"), self._style(sight.state))
        self.query_one("#why", Static).update(why)

    def _paint(self) -> None:
        """Bring the slots in sight up to date; a cell that says what it said already costs nothing."""
        table = self._table()
        top = max(0, int(table.scroll_y))
        for slot in range(top, min(len(self._shown), top + max(table.size.height, 1))):
            target = self._shown[slot]
            cells, before = self._cells(target, self._sight(target)), self._painted.get(slot, ())
            self._painted[slot] = cells
            for column, cell in enumerate(cells):
                if not before or before[column] != cell:
                    table.update_cell_at(Coordinate(slot, column), cell)
        self._tell()

    def _cells(self, target: str, sight: Sight) -> tuple[Text, ...]:
        figures = (sight.last, sight.ewma, sight.p50, sight.p95, sight.jitter)
        return (
            Text(target, no_wrap=True, overflow="ellipsis"),
            Text(sight.state, self._style(sight.state)),
            Text(self._plain(percent(sight.loss)), self._style("unhealthy" if sight.loss else ""), justify="right"),
            *(Text(self._plain(milliseconds(value)), justify="right") for value in figures),
            Text(self._plain(sight.clock or "–"), "dim" if self._color else ""),
            self._spark(target, self._bars),
            Text(self._plain(sight.reason), self._style(sight.state if sight.state != "healthy" else "degraded")),
        )

    def _style(self, state: str) -> str:
        """The colour of a state; where colour is not wanted, bold for what is bad (a grey red would not be readable)."""
        if self._color:
            return style_of(state)
        return "bold" if state in {"degraded", "unhealthy"} else ""

    def _plain(self, text: str) -> str:
        """The same text for a terminal that has nothing but ASCII."""
        return text if self._blocks else text.translate(_TO_ASCII)

    def _spark(self, target: str, bars: int) -> Text:
        return spark(self._history(target)[-bars:], color=self._color, blocks=self._blocks)

    def _detail(self, target: str) -> Text:
        sight = self._sight(target)
        rows = (
            ("state", sight.state),
            ("why", sight.reason or "nothing is wrong"),
            ("address", sight.address or "–"),
            ("rounds", f"{sight.rounds}, {sight.failed} of the {sight.attempts} in the window failed"),
            ("loss", f"{sight.lost} of {sight.sent} packets ({percent(sight.loss)})"),
            ("last", f"{milliseconds(sight.last)} by {sight.clock or 'no'} clock"),
            ("EWMA", milliseconds(sight.ewma)),
            ("P50, P95", f"{milliseconds(sight.p50)}, {milliseconds(sight.p95)}"),
            ("jitter", f"{milliseconds(sight.jitter)} (P95 − P50)"),
        )
        text = Text.assemble((target, "bold"), "\n\n")
        for name, value in rows:
            text.append(f"{name:<10}", "dim" if self._color else "").append(
                self._plain(value), self._style(value)
            ).append("\n")
        return text.append("\n").append_text(self._spark(target, len(self._history(target))))
