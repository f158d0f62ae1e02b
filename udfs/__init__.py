"""Engines: run compiled Programs as functions that SQL can call.

Input: the function specs of a plan (`planner.program.function_spec.FunctionSpec`) and their stored
Programs. Output: functions registered on a connection, and the names to call.

Read first:

* `engine_function.py`: the protocol that planning and scoring need from a SQL engine.
* `make_function.py`: builds an `EngineFunction` from a spec and its Program.
* `batch_function.py`: scores one Arrow batch.

`duckdb/` and `spark/` are the engines. To add one, write a class with the methods of `Engine` and
open a session with it; mypy checks the class where the session passes it to `register_functions`.
"""
