"""`compile_ahead`: compile kernels for this machine before a model needs them, for `sqlml warm`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

from sqlml.backends.native.jit import code_store, object_code
from sqlml.backends.native.jit.known_kernels import KnownKernel, known_kernels
from sqlml.backends.native.jit.map_in_processes import map_in_processes
from sqlml.backends.native.jit.specialise import is_kept, keep
from sqlml.long_work import long_work, stage


def compile_ahead(begin: Callable[[int], None]) -> int:
    """Compile the known kernels that this machine lacks, and count those that were compiled.

    Args:
        begin: called with the number of missing kernels before they are compiled.

    Raises:
        OSError: no folder of the user's own can keep them.
    """
    missing = [k for k in known_kernels() if not is_kept(k.function, k.signature)]
    if missing and not code_store.writable():
        folders = ", ".join(map(str, code_store.folders()))
        raise PermissionError(errno.EACCES, "no private folder is writable among", folders)
    begin(len(missing))
    compiled = 0
    with long_work("compiling kernels"):
        for count, is_compiled in enumerate(map_in_processes(_compile, missing), start=1):
            compiled += is_compiled
            stage(f"{count} of {len(missing)} are done")
    return compiled


def _compile(kernel: KnownKernel) -> bool:
    """Compile and keep one kernel; return False if only numba can run it."""
    with suppress(object_code.NotLoadable):
        keep(kernel.function, kernel.signature, kernel.compiled())
        return True
    return False
