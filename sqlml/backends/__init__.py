"""Backends, which compile a verified Program to a `CompiledProgram` that scores numpy arrays.

`native` runs model operators as machine code, `torch` and `onnxruntime` run Programs that
`passes.lower` has lowered to tensor operators, and `reference` runs everything with slow numpy
code. `sql` prints a Program as SQL, which then needs no function call. Read first:

* `base.py`: the contract of a backend, and the table of backends.
* `costs.py`: the measured costs with which the planner chooses a backend.

To add a backend, write a package with a class that satisfies `base.Backend`, and name it in
`base.BACKENDS`. The contract tests then compare it with the reference interpreter.
"""
