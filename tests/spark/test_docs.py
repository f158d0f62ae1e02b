"""The code blocks of docs/spark.md run, in their order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import DOCS, blocks, run, text_of

PAGE = DOCS / "spark.md"


@pytest.mark.nightly
def test_the_blocks_of_the_page_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(blocks(text_of(PAGE))) == len(blocks(text_of(PAGE), "python"))
    scope: dict[str, Any] = {}
    run(PAGE, scope)
    printed = capsys.readouterr().out
    assert "in UDF            native backend" in printed and "|  yes|" in printed
    scope["con"].close()
