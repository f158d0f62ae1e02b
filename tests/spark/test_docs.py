"""The code blocks of docs/spark.md run, in their order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")


def test_the_blocks_of_the_page_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    scope: dict[str, Any] = {}
    for text in blocks:
        exec(compile(text, "docs/spark.md", "exec"), scope)
    printed = capsys.readouterr().out
    assert "in UDF            native backend" in printed and "|  yes|" in printed
    scope["con"].close()
