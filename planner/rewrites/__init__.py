"""The rewrite rules, one per file: each is a function `Draft -> Draft`.

The input is the outline of a statement with model calls. The result is the statement for the
engine, with the planned calls.

Read first: `draft.py` (the state that rules pass on) and `apply_rules.py` (all rules in their
order, and the entry `rewrite`, which revokes rules that change what the user's names mean).

To add a rule, write a file with its function, insert it into `RULES` in `apply_rules.py`, and add a
golden file of titled statements that it changes.
"""
