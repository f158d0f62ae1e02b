"""The build hook: compile and sign the shim of DuckDB's native functions, and pack it.

It runs while a wheel is built, or an editable installation made. The environment variable
SQLML_SHIM names another platform to build for (`TARGETS` in build_shim.py), or is `none` for a
wheel without the shim. Where it cannot be built, the package goes without it, and rows take Arrow.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("sqlml", "udfs", "duckdb", "native")
BUILT = "built"


class ShimHook(BuildHookInterface[Any]):
    """Builds the shim for the platform of the wheel."""

    PLUGIN_NAME = "custom"

    _made: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """What compiles and signs; a compiler only where the system has none."""
        target = self._target()
        if target is None:
            return []
        own = self._shim().own_compiler(target) is not None
        return ["cryptography>=43", *([] if own else ["ziglang>=0.13"])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it: into the source for an editable installation, else into the wheel."""
        target = self._target()
        if target is None:
            return
        shim = self._shim()
        if version == "editable":
            folder = Path(self.root) / FOLDER / BUILT
        else:
            self._made = tempfile.TemporaryDirectory()
            folder = Path(self._made.name)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            built = shim.build_shim(folder, target)
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"sqlml without native functions of DuckDB: {error}")
            built = False
        if not built or version == "editable":
            return
        for path in folder.iterdir():
            build_data["force_include"][str(path)] = str(FOLDER / BUILT / path.name)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{shim.TARGETS[target].wheel}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Clear away what the wheel was made of."""
        if self._made is not None:
            self._made.cleanup()

    def _target(self) -> str | None:
        asked = os.environ.get("SQLML_SHIM", "")
        if asked == "none":
            return None
        found: str | None = asked or self._shim().this_platform()
        return found

    def _shim(self) -> ModuleType:
        """build_shim.py by itself: what sqlml needs is not there while it is built."""
        path = Path(self.root) / FOLDER / "build_shim.py"
        spec = importlib.util.spec_from_file_location("build_shim", path)
        assert spec is not None and spec.loader is not None
        made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made
