"""What a statement says: its outline, made once of sqlglot's tree. Nothing here asks an engine."""
