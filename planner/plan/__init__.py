"""Planning of one call, and the plan of the whole statement.

The input is a call with its target (a model and an output), its scope in the statement and the
`Context`. The result is a `PlannedCall`: the call's SQL, the engine function in this SQL, and all
that EXPLAIN shows. A `Plan` holds the planned calls and the statement for the engine.

Read first:

* `plan_call.py`: the stages of a call, from its arguments to its SQL.
* `call_draft.py`: the value that passes through the stages.
* `plan.py`: `Plan` and `PlannedCall`; `explain_plan.py` prints them.

To add a stage, write a function from `CallDraft` to `CallDraft` and put it into `STAGES`. Decisions
that concern several calls are rewrite rules (`planner/rewrites/`).
"""
