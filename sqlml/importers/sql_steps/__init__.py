"""Steps of a user's own, whose SQL is registered: read, turned into operators, and checked."""
