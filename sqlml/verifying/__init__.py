"""Verification that an imported Program predicts what its source library predicts.

Read first:

* `verification.py`: which rows are compared, and the result of the comparison.
* `source.py`: where a source is scored: in this process, in a child process, or by Spark.
* `ask_library.py`: one function per library that returns its predictions.

To verify another library, add a function to `FAMILIES`; if it loads untrusted files, also add a
loader to `LIBRARIES` in `library_process.py`.
"""
