"""The testing guide's own lines, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reachline.testing import impair, parts

pytestmark = [pytest.mark.real, pytest.mark.e2e]


@pytest.mark.parametrize(
    ("position", "said"), [(0, "1 SYNs went there"), (1, "socks5://eve:s3cret@127.0.0.1:")], ids=["box", "proxy"]
)
def test_the_guides_blocks_run(root: Path, position: int, said: str) -> None:
    impair.require_box()
    parts.require("microsocks")
    blocks = re.findall(
        r"^```python\n(.*?)^```$", (root / "docs/guide/testing.md").read_text(), re.MULTILINE | re.DOTALL
    )

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", blocks[position]],
        env={"PYTHONPATH": str(root / "src"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.stderr == ""
    assert said in done.stdout
