"""The model catalog: versions of models in ordinary tables of the schema `sqlml` of a database.

In: a `Reference` ("churn", "churn/3", "db.churn@live") and a connection. Out: a `Model` with its
Program, features, options and training facts. Changes go through `ModelChanges` and
`VersionChanges`, each in the user's transaction. A database may come from a stranger, so
`catalog_connection.py` rejects altered tables, and every stored text is checked when it is read.

Read first:
    tables.py: the stored format, also described in docs/format.md.
    model.py: the types `Model`, `NewVersion` and `Reference`.
    lookup.py and model_changes.py: lookups and changes.

To store something new about a version, add a table to `tables.py` (old files lack it until the
first write), write it in `model_changes.py`, and read it in `lookup.py`.
"""
