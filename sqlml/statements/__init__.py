"""Statements about models, carried out on either engine.

A parsed statement (`sqlml/parsing/statements.py`) and the `Models` of a connection go in. A change
is written to the catalog. A statement with an answer returns the query whose result is the answer.

Read first:
    dispatch.py: the functions that carry out statements and changes of ALTER MODEL.
    create_model.py: how a fitted object or a file becomes a stored version.
    model_methods.py: the same statements as methods of a session.

To add a statement, define its value and its grammar in `sqlml/parsing/`, write its function in a
file of its name, and add it to `STATEMENTS` or `CHANGES` in dispatch.py.
"""
