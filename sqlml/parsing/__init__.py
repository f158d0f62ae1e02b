"""SQL as sqlglot's trees: its dialects with what sqlml adds, and the place of each node."""
