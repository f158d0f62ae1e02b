"""Binding of the arguments of a model call to the model's features.

The input is a call of the outline (`planner/syntax`) and its `Scope`. The result is the requested
output of a model (`Target`) and the SQL expression that feeds each feature (`BoundInput`), or an
error that points at the argument.

Read first:

* `context.py`: the `Context`, which is all that the planner may ask of the engine and the catalog.
* `bind.py`: binds arguments to features by name, star, struct, list or position.
* `probe_queries.py`: the probes, small queries with which the engine reports names and types.

`requested_output.py` finds the model and output of a call, and `models_of_rows.py` the models that
rows name. `column_types.py` converts a column to the type of a feature. `refused_nulls.py` and
`unknown_categories.py` implement the options `on_null` and `on_unknown`. To support another kind of
argument, add its columns to `Available` in `bind.py`.
"""
