"""`VanishingFolder`: a folder that goes when it is not needed any more, or when the process is
killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Self

_WAITS = "import shutil, sys; sys.stdin.read(); shutil.rmtree(sys.argv[1], ignore_errors=True)"
"""What the child runs: its standard input ends with its parent, however that ends."""


class VanishingFolder:
    """A folder for files that libraries open by name, and that nobody needs afterwards.

    A process of its own, which outlives this one, removes it.

    Args:
        parent: where it is made; None: in the system's folder for such files.
    """

    def __init__(self, parent: str | None) -> None:
        self._parent = parent

    def __enter__(self) -> Self:
        """Make the folder; its path is `path`.

        Raises:
            OSError: it cannot be made, or no process can be started.
        """
        self.path = os.path.abspath(tempfile.mkdtemp(prefix="sqlml_training_", dir=self._parent))
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WAITS, self.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=tempfile.gettempdir(),
                start_new_session=True,  # what kills this process's group leaves it alone
            )
        except BaseException:
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._child.kill()
        self._child.wait()
        if self._child.stdin is not None:
            self._child.stdin.close()
