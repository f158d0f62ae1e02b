"""The sdist and the wheel hold real files under one name, and score outside the checkout."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import llvmlite.binding as llvm
import pytest
from packaging.requirements import Requirement

from sqlml.backends.native.jit.kernel_keys import make_key
from sqlml.backends.native.jit.processor_levels import LEVELS
from sqlml.backends.native.jit.runtime_library import list_kernel_keys
from sqlml.backends.native.runtime.build_runtime import (
    CONNECTION,
    EXTENSION,
    PUBLIC_KEY,
    TARGETS,
    detect_duckdb_platform,
    find_compiler_command,
    is_current,
)
from sqlml.backends.native.runtime.kernel_tables import list_kernels

ROOT = Path(__file__).resolve().parents[2]

BUILT = "sqlml/backends/native/runtime/built"
"""The folder in a wheel with what is built for a platform."""

SCORE = """
import importlib.util
import numpy as np, pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
import sqlml

assert {root!r} not in sqlml.__file__, sqlml.__file__
assert importlib.util.find_spec("udfs") is None
assert importlib.util.find_spec("planner") is None
rng = np.random.default_rng(0)
frame = pd.DataFrame(rng.normal(size=(500, 3)), columns=list("abc"))
label = np.where(frame["a"] + frame["b"] ** 2 > 1, "high", "low")
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(frame, label)
with sqlml.connect("scores.duckdb") as con:
    con.register("incoming", frame)
    con.execute("CREATE TABLE points AS SELECT row_number() OVER () AS id, * FROM incoming")
    con.create_model("level", model)
with sqlml.connect("scores.duckdb") as con:
    rows = con.sql(
        "SELECT predict('level', *), predict_proba('level', *, class := 'high') "
        "FROM points ORDER BY id"
    ).fetchall()
assert [r[0] for r in rows] == list(model.predict(frame))
np.testing.assert_allclose([r[1] for r in rows], model.predict_proba(frame)[:, 0], rtol=1e-6)
"""


def build(folder: Path, **variables: str) -> Path:
    """Build the sdist, and the wheel from it, with more variables of the environment.

    Returns:
        The path of the wheel.
    """
    environment = {k: v for k, v in os.environ.items() if k != "SQLML_KERNELS"}
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
        env={**environment, **variables},
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist, and the wheel that an installation from source builds."""
    folder = tmp_path_factory.mktemp("dist")
    build(folder)
    return folder


@pytest.fixture(scope="module")
def wheel(archives: Path) -> Path:
    (path,) = archives.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new virtual environment with the wheel."""
    return installed(wheel, tmp_path_factory.mktemp("clean") / "venv")


def installed(wheel: Path, folder: Path) -> Path:
    """The Python of a new virtual environment in a folder, which has the wheel.

    Its dependencies are found where this test runs, so that no network is needed.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", *options, wheel],
        check=True,
    )
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def outside(folder: Path, *command: str | Path) -> str:
    """Run a command in `folder` without the checkout on its path, and return what it prints."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def source_files() -> set[str]:
    """What the package holds once its symlinks are followed, but for what is built."""
    return {
        str(PurePosixPath(folder).relative_to(ROOT) / name)
        for folder, _, names in os.walk(ROOT / "sqlml", followlinks=True)
        for name in names
        if not folder.endswith("__pycache__") and BUILT not in folder
    }


def test_wheel_adds_one_name_to_site_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {PurePosixPath(name).parts[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"sqlml"}


def test_wheel_holds_every_file_of_the_package_and_no_symlink(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        infos = archive.infolist()
        modes = {info.filename: info.external_attr >> 28 for info in infos}
        inside = {name for name in modes if name.startswith("sqlml/")}
        target = detect_duckdb_platform()
        has_runtime = target is not None and find_compiler_command(target) is not None
        folders = (BUILT, f"{BUILT}/{CONNECTION}")
        built = {f"{folder}/{name}" for folder in folders for name in (EXTENSION, PUBLIC_KEY)}
        assert inside == source_files() | (built if has_runtime else set())
        assert wheel.name.endswith("-any.whl") != has_runtime
        assert {"sqlml/udfs/__init__.py", "sqlml/planner/__init__.py"} <= inside
        assert {"sqlml/sql/demo/score.sql", "sqlml/py.typed"} <= inside
        assert archive.read("sqlml/udfs/__init__.py") == (ROOT / "udfs/__init__.py").read_bytes()
    symlink = 0o12
    assert symlink not in modes.values()


def test_an_installation_from_source_compiles_no_kernels(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    assert sizes.get(f"{BUILT}/{EXTENSION}", 0) < 1 << 16
    monkeypatch.delenv("SQLML_KERNELS", raising=False)
    packages = {Requirement(text).name for text in load_hook().dependencies()}
    assert packages <= {"cryptography", "ziglang"}, "pip installs these before it builds"
    monkeypatch.setenv("SQLML_KERNELS", "all")
    packages = {Requirement(text).name for text in load_hook().dependencies()}
    assert {"numba", "ziglang"} <= packages


def load_hook(root: Path = ROOT) -> Any:
    """Make the build hook for the project in `root`, as hatchling does."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.PlatformHook(str(root), {}, None, None, "", "wheel")


def test_an_editable_installation_keeps_a_current_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = detect_duckdb_platform()
    if target is None or not is_current(ROOT / BUILT, target):
        pytest.skip("`make runtime` was not run")
    shutil.copytree(ROOT / BUILT, tmp_path / BUILT)
    folder = (tmp_path / BUILT).parent
    for name in ("build_runtime.py", "runtime.c"):
        shutil.copy(ROOT / BUILT / ".." / name, folder / name)
    hook, built = load_hook(tmp_path), list[Path]()
    monkeypatch.setattr(hook, "_build", lambda folder, target: built.append(folder))
    hook.initialize("editable", {})
    assert not built
    with (folder / "runtime.c").open("a") as source:
        source.write("\n")
    hook.initialize("editable", {})
    assert built == [tmp_path / BUILT]


def test_sdist_holds_real_files_only_under_one_name(archives: Path) -> None:
    (path,) = archives.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    assert not [m.name for m in members if m.issym() or m.islnk()]
    names = {str(PurePosixPath(*PurePosixPath(m.name).parts[1:])) for m in members if m.isfile()}
    assert {n for n in names if n.startswith("sqlml/")} == source_files()
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names
    assert {PurePosixPath(n).parts[0] for n in names if "/" in n} == {"sqlml"}


def test_installed_wheel_scores_a_table(clean: Path, tmp_path: Path) -> None:
    outside(tmp_path, clean, "-c", SCORE.format(root=str(ROOT)))


def test_installed_command_scores_from_the_shell(clean: Path, tmp_path: Path) -> None:
    outside(tmp_path, clean, "-c", SCORE.format(root=str(ROOT)))
    printed = outside(
        tmp_path,
        clean.with_name("sqlml"),
        "scores.duckdb",
        "-c",
        "SELECT count(*) FILTER (predict('level', *) = 'high') > 0 AS some_are_high FROM points",
    )
    assert "some_are_high" in printed
    assert "true" in printed


@pytest.mark.nightly
def test_scoring_needs_no_training_library(clean: Path, tmp_path: Path) -> None:
    outside(tmp_path, clean, "-c", SCORE.format(root=str(ROOT)))
    outside(
        tmp_path,
        clean,
        "-c",
        "import sys, sqlml\n"
        "con = sqlml.connect('scores.duckdb')\n"
        "con.execute(\"CREATE TABLE s AS SELECT predict('level', *) AS p FROM points\")\n"
        "optional = {'sklearn', 'xgboost', 'lightgbm', 'catboost'}\n"
        "optional |= {'onnx', 'onnxruntime', 'skops', 'torch'}\n"
        "loaded = optional & set(sys.modules)\n"
        "assert not loaded, loaded",
    )


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of a release, which takes several minutes of two processors to compile."""
    return build(tmp_path_factory.mktemp("release"), SQLML_KERNELS="all")


@pytest.fixture(scope="module")
def released(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new virtual environment with the wheel of a release."""
    return installed(release, tmp_path_factory.mktemp("released") / "venv")


needs_zig = pytest.mark.skipif(
    detect_duckdb_platform() is None or importlib.util.find_spec("ziglang") is None,
    reason="needs ziglang, which `make nightly` and `make dist` install",
)


@pytest.mark.nightly
@needs_zig
def test_the_wheel_of_a_release_has_the_kernels_of_all_levels(release: Path) -> None:
    target = detect_duckdb_platform()
    assert target is not None
    with zipfile.ZipFile(release) as archive:
        runtime = archive.read(f"{BUILT}/{EXTENSION}")
    keys = tuple(make_key(kernel.function, kernel.signature) for kernel in list_kernels())
    assert list_kernel_keys(runtime) == keys
    assert all(level.encode() + b"\0" in runtime for level in TARGETS[target].levels)
    assert release.name.endswith(f"-py3-none-{TARGETS[target].wheel}.whl")
    assert release.stat().st_size < 8 << 20


def list_own_levels() -> list[str]:
    """Return the levels that this processor supports."""
    target = detect_duckdb_platform()
    features = {**llvm.get_host_cpu_features(), "neon": True, "fp-armv8": True}
    levels = () if target is None else TARGETS[target].levels
    return [name for name in levels if all(map(features.get, LEVELS[name]))]


@pytest.mark.nightly
@needs_zig
@pytest.mark.parametrize("level", [None, *list_own_levels()])
def test_first_use_of_the_wheel_of_a_release_compiles_nothing(
    level: str | None, released: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    settings = {"NUMBA_CACHE_DIR": str(cache), **({"SQLML_LEVEL": level} if level else {})}
    set_environment = f"import os; os.environ |= {settings!r}\n"
    watched = SCORE.format(root=str(ROOT)) + "import sys; assert 'numba' not in sys.modules"
    outside(tmp_path, released, "-c", set_environment + watched)
    assert not list(cache.rglob("*")), "nothing was compiled"


PLAIN = """
import sys
import duckdb
con = duckdb.connect("scores.duckdb", config={"allow_unsigned_extensions": "true"})
con.execute("LOAD './level.duckdb_extension'")
print(con.execute("SELECT DISTINCT level(a, b, c) FROM points ORDER BY ALL").fetchall())
assert not {"sqlml", "numba", "numpy", "llvmlite"} & set(sys.modules)
"""


@pytest.mark.nightly
@needs_zig
def test_a_model_that_the_wheel_of_a_release_exports_runs_without_it(
    released: Path, tmp_path: Path
) -> None:
    outside(tmp_path, released, "-c", SCORE.format(root=str(ROOT)))
    command = "EXPORT MODEL level TO 'level.duckdb_extension'"
    outside(tmp_path, released.with_name("sqlml"), "scores.duckdb", "-c", command)
    assert outside(tmp_path, released, "-c", PLAIN) == "[('high',), ('low',)]\n"


def test_versions_that_the_tests_pass_with_are_allowed_by_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    wanted = [Requirement(line) for group in groups for line in group]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    for pin in pins:
        (version,) = [s.version for s in pin.specifier]
        for requirement in wanted:
            if requirement.name == pin.name:
                assert requirement.specifier.contains(version), (str(requirement), version)


def test_training_libraries_are_no_core_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {line.split(">")[0] for line in project["dependencies"]}
    assert names == {"duckdb", "numba", "numpy", "pyarrow", "sqlglot"}
