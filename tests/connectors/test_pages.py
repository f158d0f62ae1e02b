"""The code of docs/connect.md runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("ibis", "duckdb_engine"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "connect.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    scope: dict[str, object] = {}
    for text in blocks:
        exec(compile(text, "connect.md", "exec"), scope)
    shown = capsys.readouterr().out
    assert "leaves" in shown and "stays" in shown
    assert len(blocks) >= 3
