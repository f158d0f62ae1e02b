"""Argument checks: predicates that decide if a kernel may be called with the arrays of a file.

An exported model (`udfs/duckdb/native/extension_file.py`) is a table of kernel calls with their
constants. Anybody can write such a file, and kernels check nothing: a wrong number in an array
would let them read or write any memory. So when a model is loaded, the runtime (`runtime.c`) first
checks that each array lies inside the file or in a buffer that is large enough, and then calls the
argument check of the kernel, which knows what the numbers in the arrays mean.

A check has the signature of its kernel, and is compiled for the same kinds of arguments. It returns
True only if the kernel, for any content and any number of rows,

* reads and writes only inside its arrays; up to 64 bytes beyond the end of a constant array may be
  read, since the file pads each array, and prefetches may have any address,
* terminates,
* never divides an integer by zero.

The constants of a check are those of the kernel, with any content: counts are any 64-bit numbers,
flags are 0 or 1. Arrays are contiguous, and their lengths are not negative. Arrays of rows (the
first argument, the last, and any other that is not a constant) have one row, and an address that
must not be read, and that no constant has. Their shape along the other axis, strides and dtype may
be used. A flat array of rows has the length of one row.

A check must accept everything that the compilers of sqlml produce. It runs once per load, so it
takes time in proportion to the size of the arrays, also for hostile content. Some rules:

* Compare every number with its bounds before it is used as an index or in a product.
* Write `a > limit - b` instead of `a + b > limit`, so that no sum overflows.
* Lengths do not bound each other: an array of shape (0, 2**62) has no bytes.

Files to read first: `bin_checks.py` for the rules of simple arrays, then the check of a kernel, for
example `tree_checks.py`. To add a check, write `check_<kernel>` in the file of its family, and test
it as `tests/unit/backends/native/argument_checks/test_tree_checks.py` does: with the calls of real
models, and with damaged ones between guard pages.
"""
