"""Models scored outside SQL, with the methods of the source library.

`compile` converts a fitted object, a model file or a Program to a `Scorer`. The methods of a Scorer
accept rows in any common form and return numpy arrays. The package also reads the rows of
statements (`input_table.read_program_inputs`) and computes the metrics of trained models.

Read first:
    scorer.py: `compile`, the methods of a Scorer, and the choice of the path for a batch.
    input_table.py: `Table.of`, which reads arrays, frames, relations and lists of rows.
    scoring_paths.py: a compiled output, and the fast paths for numpy matrices and for a few texts.

A new output needs a method in `Scorer` and an entry in `_OUTPUT_OF_METHOD`.
"""
