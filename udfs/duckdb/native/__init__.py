"""Functions of models that DuckDB calls as machine code, without Python's lock (DuckDB 2.0).

The input is an `EngineFunction` of columns, and a connection of DuckDB's C API. The output is a
registered scalar function, or False if Python must score.

Read first:

* `native_functions.py`: registers functions, and builds and drops their plans.
* `row_path.py`: the kernel that DuckDB calls for each vector of rows; it follows a plan.
* `plan_bytecode.py`: writes a compiled Program as a plan, a table of integers.

`memory_layout.py` defines the memory that Python and the kernels share. `named_models.py` and
`model_router.py` score rows that name their models. `extension.py` installs and loads the runtime,
which provides a connection of the C API. `export_extension.py` writes models as an extension that
needs no Python: `exported_functions.py` describes their functions, and `extension_file.py` writes
the data that the runtime reads.
"""
