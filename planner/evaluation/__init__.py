"""How good predictions are, as SQL: metrics, curves and confusion matrices in the engine itself."""
