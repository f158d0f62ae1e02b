"""`compile_ahead`: machine code for this machine before a model needs it, for `sqlml warm`."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress

from sqlml.backends.native.jit import code_store, object_code
from sqlml.backends.native.jit.in_processes import in_processes
from sqlml.backends.native.jit.known_kernels import KnownKernel, known_kernels
from sqlml.backends.native.jit.specialise import is_kept, keep


def compile_ahead(begin: Callable[[int], None]) -> int:
    """Compile the known kernels that this machine has no machine code of.

    Args:
        begin: is told how many there are, before they are compiled.

    Returns:
        How many were compiled.

    Raises:
        OSError: there is no folder of the user's own to keep them in.
    """
    missing = [k for k in known_kernels() if not is_kept(k.function, k.signature)]
    if missing and not code_store.writable():
        folders = ", ".join(map(str, code_store.folders()))
        raise PermissionError(errno.EACCES, "no private folder is writable among", folders)
    begin(len(missing))
    return sum(in_processes(_compile, missing))


def _compile(kernel: KnownKernel) -> bool:
    with suppress(object_code.NotLoadable):  # only numba can run it
        keep(kernel.function, kernel.signature, kernel.compiled())
        return True
    return False
