"""Verification that an imported Program predicts what its source library predicts.

In: a Program and its source (a fitted object, a model file or a stored Program). Out: a
`Verification` with the largest difference per output.

Read first:

* `verification.py`: which rows are compared, and the verdict.
* `source.py`: where a source is scored: in this process, in a child process, or by Spark.
* `ask_library.py`: one function per library that returns its predictions.

`compare.py` measures differences, and `rounding_ties.py` excuses rows that only rounding decides.
To verify another library, add a function to `FAMILIES`; if it loads untrusted files, also add a
loader to `LIBRARIES` in `library_process.py`.
"""
