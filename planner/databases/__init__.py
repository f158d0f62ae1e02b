"""Models as SQL that other databases can run without sqlml.

The input is a Program and the name of a database. The result is a query, a view, functions, or a
table of tree nodes with the query that walks it. Predictions equal those of sqlml, except that
errors become NULL.

Read first:

* `export_for.py`: EXPORT ... DIALECT, from the model to the queries that compute the predictions.
* `targets.py`: all databases, with the SQL that is special to each.

To add a database, add a `Database` and a row to `DATABASES` in `targets.py`. Expressions are
written in the SQL of `sqlml/dialects/portable.py` and translated by `transpiled.py`, and
`range_errors.py` guards them for databases that end a query on overflow.
"""
