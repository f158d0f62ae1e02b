"""Backends: they compile a Program to something that runs.

A backend receives a verified Program and returns a `Compiled`, which maps batches of numpy arrays
to numpy arrays. `native` runs model operators as machine code, `torch` and `onnxruntime` run
Programs that `passes.lower` has lowered to tensor operators, and `reference` runs everything with
slow numpy code. `sql` is different: it prints a Program as SQL, which then needs no function call.

Read first:

* `base.py`: the contract of a backend, and the table of backends.
* `costs.py`: the measured costs by which the planner chooses among them.
* `row_blocks.py`: running a Program in blocks of rows, which torch, onnxruntime and native share.

To add a backend, write a package with a class that satisfies `base.Backend`, and name it in
`base.BACKENDS`. The contract tests then compare it with the reference.
"""
