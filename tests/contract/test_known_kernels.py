"""The list of kernels that are compiled ahead: each of them exists, and no family needs another."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from sqlml.backends.native.jit.compile_ahead import FILE, parse_line, read_known_kernels
from sqlml.backends.native.jit.runtime_library import CALLED, find_symbol

ROOT = Path(__file__).resolve().parents[2]


def test_the_list_is_sorted_and_says_functions_that_there_are() -> None:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(set(lines))
    assert [kernel.to_line() for kernel in read_known_kernels()] == lines
    for kernel in read_known_kernels():
        code = kernel.function.__code__
        assert code.co_argcount == len(kernel.signature), kernel.to_line()
        assert Path(code.co_filename).is_file()


def test_the_runtime_names_the_engine_functions_that_kernels_call() -> None:
    for name in {kernel.module for kernel in read_known_kernels()}:
        module = importlib.import_module(name)
        engine_functions = {n for n in vars(module) if n.startswith("duckdb_")}
        assert engine_functions <= set(CALLED), name
    for name in CALLED:
        assert find_symbol(name)


@pytest.mark.nightly
def test_no_family_needs_another() -> None:
    command = [sys.executable, "-m", "tests.contract.kernels_in_use"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    used = {
        parse_line(line).to_line() for line in done.stdout.splitlines() if line.startswith("sqlml")
    }
    assert len(used) > 50
    missing = used - {kernel.to_line() for kernel in read_known_kernels()}
    assert not missing, f"add to {FILE.name}:\n" + "\n".join(sorted(missing))
