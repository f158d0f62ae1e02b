"""The build hook: what a wheel has besides its sources, for one platform.

* The shim of DuckDB's native functions, compiled and signed. An editable installation has it, too.
  The environment variable SQLML_SHIM names another platform to build for (`TARGETS` in
  build_shim.py), or is `none` for a wheel without the shim. Without it rows take Arrow.
* The machine code of kernels, on Linux for x86_64 processors of this one's level. The environment
  variable SQLML_KERNELS is `all` for those of every level, or `none`. Without the code each machine
  compiles what it needs.

What cannot be built is left out, with a warning.
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

SHIM = Path("sqlml", "udfs", "duckdb", "native")
KERNELS = Path("sqlml", "backends", "native", "jit")
BUILT = "built"

WITH_KERNELS = "linux_amd64"
"""The platform whose wheels have the machine code of kernels."""


class PlatformHook(BuildHookInterface[Any]):
    """Builds what depends on the platform of the wheel."""

    PLUGIN_NAME = "custom"

    _made: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """What compiles and signs; a C compiler only where the system has none."""
        target, needed = self._target(), []
        if target is not None:
            own = self._shim().own_compiler(target) is not None
            needed += ["cryptography>=43", *([] if own else ["ziglang>=0.13"])]
        return [
            *needed,
            *(["numba>=0.61", "numpy>=2.0", "pyarrow>=17"] if self._has_kernels() else []),
        ]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it: the shim into the source for an editable installation, else into the wheel."""
        shim, target = self._shim(), self._target()
        if version == "editable":
            if target is not None:
                self._build_shim(Path(self.root) / SHIM / BUILT, target)
            return
        self._made = tempfile.TemporaryDirectory()
        made = {place: Path(self._made.name, place.name) for place in (SHIM, KERNELS)}
        if target is not None:
            self._build_shim(made[SHIM], target)
        if self._has_kernels():
            self._build_kernels(made[KERNELS])
        files = {
            str(path): str(place / BUILT / path.name)
            for place, folder in made.items()
            for path in (folder.iterdir() if folder.is_dir() else ())
        }
        if files:
            build_data["force_include"].update(files)
            build_data["pure_python"] = False
            tag = shim.TARGETS[target or shim.this_platform()].wheel
            build_data["tag"] = f"py3-none-{tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Clear away what the wheel was made of."""
        if self._made is not None:
            self._made.cleanup()

    def _build_shim(self, folder: Path, target: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            self._shim().build_shim(folder, target)
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"sqlml without native functions of DuckDB: {error}")

    def _build_kernels(self, folder: Path) -> None:
        """In a process of its own, since this one is not to import numba."""
        self.app.display_info("compiling kernels, which takes a minute or two")
        path = os.pathsep.join([self.root, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "sqlml.backends.native.jit.build_kernels", str(folder)]
        command += ["all"] if os.environ.get("SQLML_KERNELS") == "all" else []
        try:
            subprocess.run(command, env=env, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"sqlml without machine code of kernels: {error}")
            shutil.rmtree(folder, ignore_errors=True)

    def _has_kernels(self) -> bool:
        """Whether the wheel is one for this platform that has the machine code of kernels."""
        here = self._shim().this_platform()
        asked = os.environ.get("SQLML_KERNELS", "")
        return here == WITH_KERNELS and asked != "none" and self._target() in (None, here)

    def _target(self) -> str | None:
        asked = os.environ.get("SQLML_SHIM", "")
        if asked == "none":
            return None
        found: str | None = asked or self._shim().this_platform()
        return found

    def _shim(self) -> ModuleType:
        """build_shim.py by itself: what sqlml needs is not there while it is built."""
        path = Path(self.root) / SHIM / "build_shim.py"
        spec = importlib.util.spec_from_file_location("build_shim", path)
        assert spec is not None and spec.loader is not None
        made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made
