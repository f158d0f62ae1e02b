"""Python code in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def run(
    code: str,
    folder: Path,
    *arguments: str,
    text: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `code` as a script in `folder`, with this process' search path, `text` as input, and
    more variables of the environment.

    A script and not `python -c`: DuckDB takes that for a person at a prompt, and prints a progress
    bar among the results of a query that takes over two seconds.
    """
    script = folder / "child_script.py"
    path = [p for p in sys.path if p]
    script.write_text(f"import sys; sys.path[:0] = {path!r}\n{code}", encoding="utf-8")
    command = [sys.executable, str(script), *arguments]
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(
        command, cwd=folder, env=variables, input=text, capture_output=True, text=True
    )


def printed(code: str, folder: Path, *arguments: str, **environment: str) -> str:
    """What `code` prints, run with more variables of the environment; it ends without an error."""
    made = run(code, folder, *arguments, environment=environment)
    assert made.returncode == 0, made.stderr
    return made.stdout
