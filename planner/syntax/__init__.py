"""The syntax of a statement: its text and sqlglot's tree become an `Outline`. No engine is asked.

In goes the text of a statement; out comes what the planner needs to know about it, each part with
its span in the text, so that a rewrite replaces spans and leaves the rest byte for byte.

Read first:

* `statement_text.py` decides whether a text concerns models, and splits it into statements.
* `outline.py` defines the `Outline`, its calls and blocks, and `splice`, which rewrites the text.
* `read_outline.py` builds the outline in one walk (`outline_walk.py`) by the rules in
  `query_rules.py`, `change_rules.py` and `expression_rules.py`. `arguments.py` reads the arguments
  of calls from tokens, `table_forms.py` the table forms.

Cascades need to know more about one DuckDB query: `joins.py`, `lineage.py` and `top_k.py` analyse
its joins, the sources of its columns and its order.

To support another kind of node, add a rule to the `RULES` of its file: it records what the node
means in the `Walker` and walks on into the children with their own `WalkContext`.
"""
