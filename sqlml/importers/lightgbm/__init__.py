"""LightGBM: estimators, Boosters and text files. lightgbm itself is not imported."""
