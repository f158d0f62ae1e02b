"""Which backend, strategy and device run a Program, by estimated cost; no SQL."""
