"""The build hook: add the runtime, which fits one platform only, to a wheel.

The runtime is a library of C code, signed as an extension of DuckDB. An editable installation has
it, too. SQLML_PLATFORM names another platform to build for (`TARGETS` in build_runtime.py), or is
`none` for a wheel without a runtime: rows then take Arrow, and kernels need numba.

If SQLML_KERNELS is `all`, the library has the machine code of all known kernels, which takes
minutes to compile. `make dist` sets it for a release. An installation from source goes without
them, and each machine compiles the kernels that it uses.

A runtime that cannot be built is left out, with a warning, unless it should have kernels.
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

RUNTIME = Path("sqlml", "backends", "native", "runtime")
BUILT = "built"


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
            if self._has_kernels() or self._builder().find_system_compiler(target) is None:
                packages.append("ziglang>=0.13")
        if self._has_kernels():
            packages += ["numba>=0.61", "numpy>=2.0", "pyarrow>=17"]
        return packages

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the runtime into the wheel, or into the sources of an editable installation."""
        target = self._target()
        if target is None:
            return
        if version == "editable":
            folder = Path(self.root) / RUNTIME / BUILT
            # `make runtime` may have compiled kernels into it, which another installation keeps.
            if self._has_kernels() or not self._builder().is_current(folder, target):
                self._build(folder, target)
            return
        self._build_folder = tempfile.TemporaryDirectory()
        folder = Path(self._build_folder.name)
        self._build(folder / BUILT, target)
        paths = [path for path in (folder / BUILT).rglob("*") if path.is_file()]
        files = {str(path): str(RUNTIME / path.relative_to(folder)) for path in paths}
        if files:
            build_data["force_include"].update(files)
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{self._builder().TARGETS[target].wheel}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the folder in which the files were built."""
        if self._build_folder is not None:
            self._build_folder.cleanup()

    def _build(self, folder: Path, target: str) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory() as kernels:
            if self._has_kernels():
                self._compile_kernels(kernels, target)
            try:
                path, is_release = Path(kernels, target), self._has_kernels()
                is_built = self._builder().build_runtime(
                    folder, target, path if is_release else None, portable=is_release
                )
                if is_release and not is_built:
                    raise ImportError("a release is built with ziglang: pip install ziglang")
            except (ImportError, OSError, subprocess.CalledProcessError) as error:
                if self._has_kernels():
                    raise
                self.app.display_warning(f"sqlml without native functions of DuckDB: {error}")

    def _compile_kernels(self, folder: str, target: str) -> None:
        """Compile the kernels in a process of its own, so that this one does not import numba."""
        self.app.display_info("compiling kernels, which takes several minutes")
        path = os.pathsep.join([self.root, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        module = "sqlml.backends.native.runtime.compile_kernels"
        subprocess.run([sys.executable, "-m", module, folder, target], env=env, check=True)

    def _has_kernels(self) -> bool:
        """Tell whether kernels are asked for, and built for this platform, which has them."""
        return os.environ.get("SQLML_KERNELS") == "all"

    def _target(self) -> str | None:
        """Return the platform to build for, by DuckDB's name; None without a runtime."""
        name = os.environ.get("SQLML_PLATFORM", "")
        if name == "none":
            return None
        target: str | None = name or self._builder().detect_duckdb_platform()
        return target

    def _builder(self) -> ModuleType:
        """Import build_runtime.py by itself, since imports of sqlml are missing during a build."""
        path = Path(self.root) / RUNTIME / "build_runtime.py"
        spec = importlib.util.spec_from_file_location("build_runtime", path)
        assert spec is not None and spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
