"""Binding: the meaning of each argument of a model call. The engine is asked, but nothing is
decided yet.

In go a call of the outline (`planner/syntax`) and its `Scope`; out come the requested output of a
model (`Target`) and the SQL expression that feeds each feature (`Bound`), or an error that points
at the argument.

Read first:

* `context.py`: the `Context`, which is all that the planner may ask of the engine and the catalog.
* `bind.py`: arguments become features, by name, star, struct, list or position.
* `probe_queries.py`: the probes, small queries by which the engine tells names and types.

`requested_output.py` finds the model and output of a call, and `models_of_rows.py` the models that
rows name. `column_types.py` converts a column to the type of a feature. `refused_nulls.py` and
`unknown_categories.py` implement the options `on_null` and `on_unknown`. To support another kind of
argument, add its columns to `Available` in `bind.py`.
"""
