"""Models as SQL that other databases can run without sqlml.

A Program and the name of a database come in, and statements go out: a query, a view, functions, or
a table of tree nodes with the query that walks it. Results equal those of sqlml, apart from NULL
instead of errors.

Read first:

* `export_for.py`: EXPORT ... DIALECT, from the model to the queries that compute the predictions.
* `targets.py`: all databases, with the SQL that is special to each.

To add a database, add a `Database` and a row to `DATABASES` in `targets.py`. Expressions are
written in the SQL of `sqlml/dialects/portable.py` and translated by `transpiled.py`, and
`range_errors.py` guards them for databases that end a query on overflow.
"""
