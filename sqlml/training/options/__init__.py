"""Options: the checked and completed OPTIONS (...) of a training statement.

The options of a statement go in. A `Request` comes out, or a ConfigError that names the option and
suggests what to write instead.

Read first: `request.py`, the sequence of checks; `sqlml_options.py`, the table of sqlml's options;
`estimator_parameters.py`, the parameters of the libraries; `splits.py`, the rules that hold out
rows.

To add an option, add it to `TRAINING_OPTIONS` (`sqlml_options.py`) and to
`Request.from_sqlml_options`, and document it in docs/reference.
"""
