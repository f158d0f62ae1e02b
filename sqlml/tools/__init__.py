"""Programs and plugins that use a session: the command line, the shell, connectors, the demo.

`cli.py` reads the arguments of the `sqlml` command, and runs one of its `COMMANDS` or the
interactive `shell/`. `connectors/` has plugins for other programs: dbt, harlequin, SQLAlchemy and
notebooks. `calibration/` measures this machine for the planner's cost model. `demo/` trains and
scores models on the flights of New York City.

To add a command, write a function in `cli.py` and add it to `COMMANDS` there.
"""
