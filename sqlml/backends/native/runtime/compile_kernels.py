"""Compile the runtime's kernels ahead, for each processor level of a platform:

    python -m sqlml.backends.native.runtime.compile_kernels FOLDER PLATFORM ... [--own-level]

numba turns a kernel into LLVM IR for the processor that runs it. The IR is taken before LLVM
optimises it, and its target is exchanged, so any platform's code can be compiled on any machine.
`build_runtime.py` links the object files and the table of kernels that are written to FOLDER.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from sqlml.backends.native.jit.call_wrapper import NUMBERS_ENTRY, RESULTS, WORDS_ENTRY, emit_entries
from sqlml.backends.native.jit.compile_ahead import KnownKernel, map_in_processes
from sqlml.backends.native.jit.kernel_keys import make_key
from sqlml.backends.native.jit.object_code import compile_with_numba
from sqlml.backends.native.jit.processor_levels import (
    LEVELS,
    find_level,
    get_level_settings,
    get_target,
)
from sqlml.backends.native.jit.runtime_library import CALLED
from sqlml.backends.native.runtime.build_runtime import TARGETS
from sqlml.backends.native.runtime.kernel_tables import (
    find_object,
    list_kernels,
    make_suffix,
    takes_numbers,
    write_tables,
)

TRIPLES = {
    "linux_amd64": "x86_64-unknown-linux-gnu",
    "linux_arm64": "aarch64-unknown-linux-gnu",
    "osx_amd64": "x86_64-apple-macosx11.0.0",
    "osx_arm64": "arm64-apple-macosx11.0.0",
    "windows_amd64": "x86_64-pc-windows-gnu",
    "windows_arm64": "aarch64-pc-windows-gnu",
}
"""Maps DuckDB's names of platforms to LLVM's."""


@dataclass(frozen=True, slots=True)
class _Job:
    """A kernel to compile for a level, and the platforms whose folders lack the object file."""

    kernel: KnownKernel
    key: str
    level: str
    targets: tuple[str, ...]


def compile_kernels(
    folder: Path,
    targets: Sequence[str],
    kernels: Sequence[KnownKernel],
    levels: Collection[str] = tuple(LEVELS),
) -> None:
    """Write the object files of `kernels` and their tables to a folder for each of `targets`.

    Files that are there already are kept, and files of other kernels are deleted. The name of a
    file has the key of the kernel, the level, and the kind of the kernel's result. numba compiles
    a kernel once for all platforms of an architecture.
    """
    keys = [make_key(kernel.function, kernel.signature).hex() for kernel in kernels]
    for target in targets:
        (folder / target).mkdir(parents=True, exist_ok=True)
    for level in LEVELS:
        level_targets = [
            target for target in targets if level in levels and level in TARGETS[target].levels
        ]
        jobs = []
        for key, kernel in zip(keys, kernels, strict=True):
            missing = [t for t in level_targets if not find_object(folder / t, key, level)]
            if missing:
                jobs.append(_Job(kernel, key, level, tuple(missing)))
        with _set_environment(get_level_settings(level)):
            for _ in map_in_processes(partial(_compile_kernel, folder), jobs):
                pass
    for target in targets:
        target_levels = [level for level in TARGETS[target].levels if level in levels]
        write_tables(folder / target, kernels, target_levels)


def _compile_kernel(folder: Path, job: _Job) -> None:
    kernel = job.kernel
    result, kernel_ir = _capture_ir(kernel)
    entry_ir = emit_entries(result, kernel.signature)
    entries = [WORDS_ENTRY, NUMBERS_ENTRY] if takes_numbers(kernel) else [WORDS_ENTRY]
    result_kind = RESULTS[str(result.fndesc.restype)]
    for target in job.targets:
        machine = _make_machine(target, job.level)
        module = _parse(kernel_ir, machine)
        module.link_in(_parse(entry_ir, machine))
        _rename_entries(module, entries, make_suffix(job.key, job.level))
        _optimise(module, machine)
        path = folder / target / f"{job.key}_{job.level}_{result_kind}.o"
        partial_path = path.with_suffix(".part")
        partial_path.write_bytes(machine.emit_object(module))
        partial_path.replace(path)


def _rename_entries(module: Any, entries: Sequence[str], suffix: str) -> None:
    """Append `suffix` to the names of the entries, and hide everything else from the linker."""
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name not in entries:
            value.linkage = "internal"
    for name in entries:
        entry = module.get_function(name)
        entry.name, entry.visibility = name + suffix, "hidden"


_ANY_ADDRESS = 0x1000


def _capture_ir(kernel: KnownKernel) -> tuple[Any, str]:
    """Compile a kernel; return numba's result, and the IR before LLVM optimises it."""
    from numba.core.codegen import CPUCodeLibrary

    library_class: Any = CPUCodeLibrary
    captured: list[str] = []
    optimise = library_class._optimize_final_module

    def capture(library: Any) -> Any:
        captured.append(str(library._final_module))
        return optimise(library)

    # The kernel is not called here, so that any address will do, and no runtime is needed yet.
    for name in CALLED:
        llvm.add_symbol(name, _ANY_ADDRESS)
    library_class._optimize_final_module = capture
    try:
        result = compile_with_numba(kernel.function, kernel.signature)
    finally:
        library_class._optimize_final_module = optimise
    return result, _ATOMIC_DECREMENT.sub(_replace_decrement, captured[-1])


# numba links its function NRT_decref after LLVM has lowered it for x86-64. The decrement of the
# reference count and the comparison of the new count with 0 are then one call.
_ATOMIC_DECREMENT = re.compile(
    r"%(\S+) = (?:tail )?call \S*i8 @llvm\.x86\.atomic\.sub\.cc\.i64\(ptr (?:nonnull )?(\S+), "
    r"i64 1, i32 4\).*"
)


def _replace_decrement(match: re.Match[str]) -> str:
    name, pointer = match.groups()
    return (
        f"%old.count.{name} = atomicrmw sub ptr {pointer}, i64 1 monotonic\n"
        f"  %is.last.{name} = icmp eq i64 %old.count.{name}, 1\n"
        f"  %{name} = zext i1 %is.last.{name} to i8"
    )


_TRIPLE = re.compile(r'target triple = ".*"')
_DATA_LAYOUT = re.compile(r'target datalayout = ".*"')


def _parse(text: str, machine: Any) -> Any:
    """Parse IR as code for the target `machine`."""
    text = _TRIPLE.sub(f'target triple = "{machine.triple}"', text)
    return llvm.parse_assembly(
        _DATA_LAYOUT.sub(f'target datalayout = "{machine.target_data}"', text)
    )


def _make_machine(target: str, level: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    cpu, features = get_target(level)
    return llvm.Target.from_triple(TRIPLES[target]).create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="default"
    )


def _optimise(module: Any, machine: Any) -> None:
    """Run LLVM's passes as numba does, which keeps the order of sums."""
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    passes.add_refprune_pass()
    passes.run(module, builder)


@contextmanager
def _set_environment(values: Mapping[str, str]) -> Iterator[None]:
    old_environment = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(old_environment)


def main(arguments: Sequence[str]) -> None:
    """Compile the runtime's kernels for platforms, as the docstring of this module says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("platforms", nargs="+", choices=TRIPLES)
    parser.add_argument("--own-level", action="store_true", help="only for this processor")
    options = parser.parse_args(arguments)
    levels = {find_level()} if options.own_level else set(LEVELS)
    chosen_levels = [level for level in LEVELS if level in levels]
    compile_kernels(options.folder, options.platforms, list_kernels(), chosen_levels)


if __name__ == "__main__":
    main(sys.argv[1:])
