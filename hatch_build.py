"""The build hook: add the files to a wheel that fit one platform only.

* The shim of DuckDB's native functions, compiled and signed. An editable installation has it, too.
  The environment variable SQLML_SHIM names another platform to build for (`TARGETS` in
  build_shim.py), or is `none` for a wheel without the shim. Without it rows take Arrow.
* The machine code of kernels, for the x86-64 processors of Linux, where the environment variable
  SQLML_KERNELS is `all`: `make dist` sets it for a release. They take minutes to compile, so an
  installation from source goes without, and each machine compiles the kernels that it uses.

A shim that cannot be built is left out, with a warning; kernels that cannot be built are an error.
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
PACKAGES = (SHIM, KERNELS)
BUILT = "built"

WITH_KERNELS = "linux_amd64"
"""The platform whose wheels have the machine code of kernels."""


class PlatformHook(BuildHookInterface[Any]):
    """The hook that hatchling calls before and after it writes a wheel."""

    PLUGIN_NAME = "custom"

    _build_folder: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        """Return the packages that compile and sign: a C compiler only if the system has none."""
        target = self._target()
        packages = []
        if target is not None:
            packages.append("cryptography>=43")
            if self._shim().find_system_compiler(target) is None:
                packages.append("ziglang>=0.13")
        if self._has_kernels():
            packages += ["numba>=0.61", "numpy>=2.0", "pyarrow>=17"]
        return packages

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the files into the wheel, or into the sources of an editable installation."""
        shim, target = self._shim(), self._target()
        if version == "editable":
            if target is not None:
                self._build_shim(Path(self.root) / SHIM / BUILT, target)
            return
        self._build_folder = tempfile.TemporaryDirectory()
        folders = {package: Path(self._build_folder.name, package.name) for package in PACKAGES}
        if target is not None:
            self._build_shim(folders[SHIM], target)
        if self._has_kernels():
            self._build_kernels(folders[KERNELS])
        files = {
            str(path): str(package / BUILT / path.name)
            for package, folder in folders.items()
            for path in (folder.iterdir() if folder.is_dir() else ())
        }
        if files:
            build_data["force_include"].update(files)
            build_data["pure_python"] = False
            tag = shim.TARGETS[target or shim.detect_duckdb_platform()].wheel
            build_data["tag"] = f"py3-none-{tag}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the folder in which the files were built."""
        if self._build_folder is not None:
            self._build_folder.cleanup()

    def _build_shim(self, folder: Path, target: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        try:
            self._shim().build_shim(folder, target)
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"sqlml without native functions of DuckDB: {error}")

    def _build_kernels(self, folder: Path) -> None:
        """Compile the kernels in a process of its own, so that this one does not import numba."""
        self.app.display_info("compiling kernels, which takes several minutes")
        path = os.pathsep.join([self.root, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "sqlml.backends.native.jit.compile_ahead", folder, "all"]
        subprocess.run(command, env=env, check=True)

    def _has_kernels(self) -> bool:
        """Tell whether kernels are asked for, and built for this platform, which has them."""
        here = self._shim().detect_duckdb_platform()
        is_asked_for = os.environ.get("SQLML_KERNELS") == "all"
        return is_asked_for and here == WITH_KERNELS and self._target() in (None, here)

    def _target(self) -> str | None:
        """Return the platform of the shim, by DuckDB's name; None for a wheel without it."""
        name = os.environ.get("SQLML_SHIM", "")
        if name == "none":
            return None
        target: str | None = name or self._shim().detect_duckdb_platform()
        return target

    def _shim(self) -> ModuleType:
        """Import build_shim.py by itself, since what sqlml imports is missing while it is built."""
        path = Path(self.root) / SHIM / "build_shim.py"
        spec = importlib.util.spec_from_file_location("build_shim", path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
