"""Export models as an extension of DuckDB, which any client of DuckDB can load without Python.

The extension is a copy of the runtime of a platform with the models behind it
(`extension_file.py`), so neither a compiler nor a linker is needed.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import Any

from sqlml.backends.native.jit.runtime_library import list_kernel_keys
from sqlml.backends.native.runtime.build_runtime import detect_duckdb_platform
from sqlml.errors import BackendError, ConfigError
from sqlml.ir.program import Program
from sqlml.types import Feature, fold
from sqlml.udfs.duckdb.native.exported_functions import (
    make_calibrated_function,
    make_exported_functions,
    make_info_table,
)
from sqlml.udfs.duckdb.native.extension_file import (
    ExportedFunction,
    ExportedTable,
    write_extension,
)
from sqlml.udfs.duckdb.native.platform_runtimes import PLATFORMS, VARIANTS, find_runtime

SUFFIX = ".duckdb_extension"


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model to export: the name of its functions, its columns in order, and its options.

    `facts` are shown by the function `<name>_info`. `calibrated` is the calibrated Program of the
    model with its columns, if there is one.
    """

    name: str
    program: Program
    features: Sequence[Feature]
    options: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    calibrated: tuple[Program, Sequence[Feature]] | None = None


def export_extension(
    models: Sequence[ExportedModel], path: str, platform: str | None = None
) -> bytes:
    """Return the content of an extension with the functions of `models`, for the file `path`.

    DuckDB derives the name of an extension from the file's name, so the content fits one name.
    `platform` is DuckDB's name of the platform that will load the file; by default, it is this
    platform. The file has no signature.

    Raises:
        ConfigError: the platform is unknown, the name of the file does not fit, or two functions
            have the same name.
        BackendError: a model needs Python to be scored, or the runtime of the platform is missing
            or has no kernels.
    """
    own_platform = detect_duckdb_platform()
    platform = platform or own_platform
    if platform is None:
        raise BackendError("there is no runtime for this platform; name another with PLATFORM")
    if platform not in PLATFORMS:
        raise ConfigError(f"unknown platform {platform!r}; platforms: {', '.join(PLATFORMS)}")
    runtime = find_runtime(platform)
    content = b"" if runtime is None else runtime.read_bytes()
    if not list_kernel_keys(content):
        raise BackendError(
            f"this installation has no compiled kernels for {platform}, which an extension needs: "
            + (
                "install sqlml's wheel, or run `make runtime` in a clone of sqlml"
                if VARIANTS.get(platform, platform) == own_platform
                else "`sqlml native --add WHEEL` takes them from sqlml's wheel for that platform"
            )
        )
    functions: list[ExportedFunction] = []
    tables: list[ExportedTable] = []
    for model in models:
        exported = make_exported_functions(model.program, model.features, model.name, model.options)
        functions += exported
        facts = {
            "model": model.name,
            **model.facts,
            "hash": model.program.hash,
            "sqlml": _find_version(),
            "platform": platform,
        }
        calibrated = None
        if model.calibrated is not None:
            program, features = model.calibrated
            function = make_calibrated_function(program, features, model.name, model.options)
            functions.append(function)
            calibrated = function, features
        tables.append(make_info_table(model.features, model.name, facts, exported, calibrated))
    names: set[str] = set()
    for name in (*(f.name for f in functions), *(table.name for table in tables)):
        if fold(name) in names:
            raise ConfigError(f"two functions would have the name {name}; rename a model")
        names.add(fold(name))
    return write_extension(content, find_extension_name(path), platform, functions, tables)


def write_extension_file(path: str, content: bytes) -> None:
    """Write an extension as a new file, since a process may have loaded the previous one."""
    partial_path = f"{path}.{secrets.token_hex(4)}.part"
    try:
        with open(partial_path, "xb") as file:
            file.write(content)
        os.replace(partial_path, path)
    except OSError:
        with suppress(OSError):
            os.remove(partial_path)
        raise


def _find_version() -> str:
    with suppress(PackageNotFoundError):  # This is a checkout that is not installed.
        return version("sqlml")
    return "0"


_EXTENSION_NAME = re.compile(r"[a-z0-9_-]{1,128}")


def find_extension_name(path: str) -> str:
    """Return the name that DuckDB gives to an extension in the file `path`.

    >>> find_extension_name("models/churn.duckdb_extension")
    'churn'
    """
    file_name = PurePath(path).name
    name = file_name.removesuffix(SUFFIX)
    if name == file_name or not _EXTENSION_NAME.fullmatch(name):
        raise ConfigError(
            f"DuckDB cannot load {file_name!r} as an extension: the name must consist of lowercase "
            f"letters, digits, - and _, followed by {SUFFIX}"
        )
    return name
