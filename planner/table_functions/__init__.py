"""Table functions, such as `FROM ml_evaluate(MODEL m, TABLE t, label := 'y')`, as subqueries.

The input is one call of a table function, as `planner/syntax/table_forms.py` parses it. The output
is the SQL that stands before, between and after the rows of the call, so that the rows remain
the user's own text. The rule `planner/rewrites/table_form.py` puts these pieces into the statement,
and the calls of models in them are planned like the user's own.

Read first:

* `table_function_registry.py`: all table functions, with the builders of their SQL.
* `table_function_call.py`: the facts that a builder reads: model, options and column types.
* `evaluation.py`: the builders of the largest group, on top of `scored_rows.py` (one row per user's
  row, with label and prediction), `metric_queries.py` and `curves.py`.

To add a table function, describe its syntax in `FORMS` (`planner/syntax/table_forms.py`), write a
function from `TableFunctionCall` to pieces of SQL, and add a row to `TABLE_FUNCTIONS`.
`tests/e2e/test_table_function_registry.py` lists the columns of each. Document it in `docs/`.
"""
