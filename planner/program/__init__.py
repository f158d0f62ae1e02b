"""Everything between a model's Program and a call of the model: backend, function and result.

The input is a Program and the requested parts of its outputs. The results are the part that SQL
computes, the part that a function computes, the cheapest backend for that function, the name from
which another process can rebuild the function, and the SQL that decodes the function's result.

Read first:

* `prepare_program.py`: selects outputs, runs the passes, splits and compiles.
* `choose.py`: resolves the options `backend`, `strategy` and `device`, with the estimates of
  `cost.py`.
* `function_spec.py`: the names of engine functions, which views store.

To add a way to run models, add a row to `WAYS` in `cost.py`, and its coefficients to
`sqlml/backends/costs.py`. To add a setting, add a row to `SETTINGS`.
"""
