"""The Huffman code of RFC 7541 read a byte at a time. The code itself is the hpack library's."""

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
_steps: Final[dict[int, tuple[int, bytes]]] = {}
"""By node * 256 + byte: the node after it, and the text that it brings. Filled as met; 65 536 at most."""


def _step(key: int) -> tuple[int, bytes]:
    at, byte = key >> 8, key & 0xFF
    text = bytearray()
    for bit in range(7, -1, -1):
        at = _NODES[at][byte >> bit & 1]
        if at < 0:
            if at == -1 - _EOS:
                raise HuffmanError("the end of a text within it")
            text.append(-1 - at)
            at = 0
    _steps[key] = found = (at << 8, bytes(text))
    return found


def decoded(data: bytes) -> bytes:
    """The text; HuffmanError where there is none."""
    at = 0
    out: list[bytes] = []
    get, append = _steps.get, out.append
    for byte in data:
        at, text = get(at | byte) or _step(at | byte)
        append(text)
    if at >> 8 not in _ENDS:
        raise HuffmanError("padding is not ones, or longer than seven bits")
    return b"".join(out)
