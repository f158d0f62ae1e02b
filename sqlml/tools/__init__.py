"""Programs and plugins around a session: the command line, the shell, connectors, the demo.

`cli.py` reads the arguments of the `sqlml` command. It runs one of its `COMMANDS`, or opens the
interactive `shell/`. `connectors/` has plugins for other programs: dbt, harlequin, SQLAlchemy
and notebooks. `calibration/` measures this machine for the planner's cost model, and `demo/` trains
and scores models on the data that comes with sqlml.

Everything here uses sqlml as a user does; nothing below imports it. To add a command, write a
function in `cli.py` and add it to `COMMANDS` there.
"""
