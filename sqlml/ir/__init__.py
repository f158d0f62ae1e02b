"""The intermediate representation: a typed, immutable DAG of operators called a Program.

Importers build a Program from a fitted model, passes rewrite it, backends run it or print it as
SQL, and catalogs store it. Read first:

* `program.py`: `Program` and `Node`, their hash and their text form.
* `ops.py`: the table of operators, type inference, and `verify`, which defines a legal Program.
* `builder.py`: `Builder`, which appends nodes, and `rewrite`, which nearly every pass uses.

`reference.py` interprets a Program with the numpy functions in `operators/`, which define what
each operator means. To add an operator, write its type rule and its numpy function in a module of
`operators/` and list it in `OPERATORS` there. Then add it to at least one backend; `tests/unit/ir`
checks each entry of the table against the backends.
"""
