"""The Huffman code of RFC 7541 read four bits at a time. The code itself is the hpack library's."""

from __future__ import annotations

from typing import Final

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

__all__ = ["HuffmanError", "decoded"]

_EOS: Final = 256
_PADDING: Final = 7
"""Bits at most, all ones."""


class HuffmanError(ValueError):
    """Bits that are no text."""


def _tree() -> list[list[int]]:
    """Nodes of two branches each: a node's number, or -1 - the symbol."""
    nodes = [[0, 0]]
    for symbol in range(_EOS + 1):
        at, code = 0, REQUEST_CODES[symbol]
        for bit in range(REQUEST_CODES_LENGTH[symbol] - 1, 0, -1):
            side = code >> bit & 1
            if not nodes[at][side]:
                nodes.append([0, 0])
                nodes[at][side] = len(nodes) - 1
            at = nodes[at][side]
        nodes[at][code & 1] = -1 - symbol
    return nodes


_NODES: Final = _tree()


def _ends() -> frozenset[int]:
    """Nodes at which a text may end."""
    at, found = 0, [0]
    for _ in range(_PADDING):
        at = _NODES[at][1]
        found.append(at)
    return frozenset(found)


_ENDS: Final = _ends()


def _step(at: int, digit: int) -> tuple[int, bytes] | None:
    """The node behind four bits, and the text that they bring: a symbol at most, for the shortest has five. None: they end the text."""
    text = b""
    for bit in range(3, -1, -1):
        at = _NODES[at][digit >> bit & 1]
        if at == -1 - _EOS:
            return None
        if at < 0:
            text, at = bytes((-1 - at,)), 0
    return at, text


def _steps() -> tuple[dict[str, tuple[int, bytes]], ...]:
    return tuple(
        {f"{digit:x}": found for digit in range(16) if (found := _step(at, digit)) is not None}
        for at in range(len(_NODES))
    )


_STEPS: Final = _steps()
"""By node, by hex digit."""


def decoded(data: bytes) -> bytes:
    """The text; HuffmanError where there is none."""
    at, steps = 0, _STEPS
    out = bytearray()
    try:
        for digit in data.hex():
            at, text = steps[at][digit]
            if text:
                out += text
    except KeyError as error:
        raise HuffmanError("the end of a text within it") from error
    if at not in _ENDS:
        raise HuffmanError("padding is not ones, or longer than seven bits")
    return bytes(out)
