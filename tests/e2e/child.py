"""Python code in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(
    code: str, folder: Path, *arguments: str, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `code` as a script in `folder`, with this process' search path and `text` as input.

    A script and not `python -c`: DuckDB takes that for a person at a prompt, and prints a progress
    bar among the results of a query that takes over two seconds.
    """
    script = folder / "child_script.py"
    path = [p for p in sys.path if p]
    script.write_text(f"import sys; sys.path[:0] = {path!r}\n{code}", encoding="utf-8")
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, cwd=folder, input=text, capture_output=True, text=True)
