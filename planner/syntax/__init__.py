"""The syntax of a statement: an `Outline` is read from the text and sqlglot's tree, without engine.

The outline has the span of each part in the text, so that a rewrite replaces spans and leaves the
rest byte for byte.

Read first:

* `statement_text.py` decides whether a text concerns models, and splits it into statements.
* `outline.py` defines the `Outline`, its calls and blocks, and `splice`, which rewrites the text.
* `read_outline.py` builds the outline in one walk (`outline_walk.py`) by the rules in
  `query_rules.py`, `change_rules.py` and `expression_rules.py`. `arguments.py` reads the arguments
  of calls from tokens, `table_forms.py` the table forms.

Cascades need to know more about one DuckDB query: `joins.py`, `lineage.py` and `top_k.py` analyse
its joins, the sources of its columns and its order.

To support another kind of node, add a rule to the `RULES` of its file. The rule records what the
node means in the `Walker`, and walks the children, each with a `WalkContext`.
"""
