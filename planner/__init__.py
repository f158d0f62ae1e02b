"""The planner: from a statement that calls models to a plan, a pure value that prints as EXPLAIN.

The input is the text of a statement, with a `Context` that answers questions about the engine and
the catalog. The result is a `Plan`: the rewritten statement for the engine, and for each call the
model, the columns that the call reads, and the functions that must be registered. The planner
registers nothing, and runs only queries that the user asks it to read while planning.

Read first:

* `plan_statement.py`: the entry point. `plan_cache.py` keeps its results.
* `rewrites/apply_rules.py`: all rewrite rules, in their order.
* `plan/plan_call.py`: the stages that plan one call.

The packages, from the bottom up: `syntax/` parses statements; `program/` prepares a model's Program
and chooses a backend; `binding/` maps arguments to features; `model_sql/` and `databases/` write
models as SQL; `plan/` plans calls; `table_functions/` writes `ml_evaluate(...)` and its siblings as
subqueries; `rewrites/` applies rules to the statement.
"""
