"""Programs and plugins around a session: the command line, the shell, connectors, the demo.

`cli.py` reads the arguments of the `sqlml` command and calls `commands/`; without a command it
opens the interactive `shell/`. `connectors/` holds what other programs load: plugins for dbt,
harlequin, SQLAlchemy and notebooks. `calibration/` measures this machine for the planner's cost
model, and `demo/` trains and scores a model on the data that comes with sqlml.

Everything here uses sqlml as a user does; nothing below imports it. To add a command, write a
module in `commands/` and add it to `COMMANDS` in `cli.py`.
"""
