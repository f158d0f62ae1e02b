"""Run the day's tests as other machines would: `make nightly-machines`.

    python -m tests.support.machines [MACHINE ...]

A test must pass on every processor, in every time zone and language, with a home that cannot be
written to, and in every order. The first machine runs the whole suite with all of this at once,
and the second the tests of Spark, which need a process of their own. The others are kinds of
processors, one of them with a single core. All run the tests that compare the last digits of fitted
models, and each runs a part of the other tests.
"""

from __future__ import annotations

import argparse
import locale
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

FITS = ("tests/databases", "tests/contract", "tests/unit/importers", "tests/unit/passes")
"""The folders of tests that compare digits of fitted models, or texts that hold such digits."""

LANGUAGE = "tr_TR.UTF-8"
"""Turkish writes 0,5, and the upper case of its i is not I."""

SIMD = np.show_config(mode="dicts")["SIMD Extensions"]
"""Features of this processor, by which numpy chooses its code."""


@dataclass(frozen=True)
class Machine:
    """Tests, and how the machine that runs them differs from this one."""

    tests: Sequence[str]
    processor: str
    """OpenBLAS computes as on this processor."""
    needs: str
    """The feature that this code needs."""
    is_foreign: bool = False
    """The machine differs in everything else, too."""
    is_parallel: bool = True
    has_one_core: bool = False


MACHINES: Mapping[str, Machine] = MappingProxyType(
    {
        "foreign": Machine(["--ignore=tests/spark"], "Nehalem", "X86_V2", is_foreign=True),
        "foreign-spark": Machine(
            ["tests/spark"], "Nehalem", "X86_V2", is_foreign=True, is_parallel=False
        ),
        "haswell": Machine(
            ["tests/databases", "tests/contract", "tests/unit"], "Haswell", "X86_V3"
        ),
        "zen": Machine([*FITS, "tests/e2e"], "Zen", "X86_V3"),
        "skylakex": Machine(
            [*FITS, "tests/connectors", "tests/generated", "tests/report"],
            "SkylakeX",
            "X86_V4",
            has_one_core=True,
        ),
    }
)


def main() -> int:
    """Run the tests of the machines that are named, or of all; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="MACHINE", help=", ".join(MACHINES))
    parser.add_argument("--workers", default="2", help="processes that run tests")
    parser.add_argument("--seed", type=int, help="the order of the tests (default: a new one)")
    options = parser.parse_args()
    unknown = set(options.names) - set(MACHINES)
    if unknown:
        parser.error(f"unknown machines {sorted(unknown)}: choose among {', '.join(MACHINES)}")
    seed = random.randrange(10**6) if options.seed is None else options.seed
    failed = []
    for name in options.names or MACHINES:
        machine = MACHINES[name]
        if not machine.is_foreign and machine.needs not in SIMD["found"]:
            print(f"{name}: this processor cannot run its code", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            if _run(name, machine, options.workers, seed, Path(folder)) != 0:
                failed.append(name)
    print(f"failed on {', '.join(failed)}" if failed else "passed on all machines")
    return 1 if failed else 0


def _run(name: str, machine: Machine, workers: str, seed: int, folder: Path) -> int:
    """Run the tests of a machine, in a folder for its home and its language."""
    changes = _foreign_environment(folder) if machine.is_foreign else {}
    if machine.needs in (*SIMD["baseline"], *SIMD["found"]):
        changes["OPENBLAS_CORETYPE"] = machine.processor
    command = [sys.executable, "-m", "pytest", "--quiet", *machine.tests]
    command += ["--random-order", f"--random-order-seed={seed}"]
    if machine.is_parallel:
        command += ["--numprocesses", workers, "--dist", "worksteal"]
    if machine.has_one_core and shutil.which("taskset"):
        core = min(os.sched_getaffinity(0))
        command = ["taskset", "--cpu-list", str(core), *command]
    shown = " ".join(f"{key}={shlex.quote(value)}" for key, value in changes.items())
    print(f"{name}: {shown} {shlex.join(command)}", flush=True)
    return subprocess.run(command, env={**os.environ, **changes}).returncode


def _foreign_environment(folder: Path) -> dict[str, str]:
    """Return variables for other threads, features, time zone, language and home."""
    home = folder / "file" / "home"  # below a file nobody can make it, not even the administrator
    home.parent.touch()
    return {
        "OMP_NUM_THREADS": "2",
        "OMP_THREAD_LIMIT": "2",
        "NPY_DISABLE_CPU_FEATURES": " ".join(SIMD["found"]),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F",  # other exp and log
        "TZ": "Pacific/Apia",
        "HOME": str(home),
        **_language(folder),
    }


def _language(folder: Path) -> dict[str, str]:
    """Return variables for a Turkish locale, made in a folder if the system lacks it.

    The locale is C where it cannot be made.
    """
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, LANGUAGE)
        return {"LC_ALL": LANGUAGE}
    except locale.Error:
        pass
    finally:
        locale.setlocale(locale.LC_ALL, before)
    if shutil.which("localedef"):
        command = ["localedef", "-i", "tr_TR", "-f", "UTF-8", str(folder / LANGUAGE)]
        if subprocess.run(command, capture_output=True).returncode == 0:
            return {"LC_ALL": LANGUAGE, "LOCPATH": str(folder)}
    print(f"{LANGUAGE} is missing and cannot be made: the tests run in the locale C", flush=True)
    return {"LC_ALL": "C"}


if __name__ == "__main__":
    sys.exit(main())
