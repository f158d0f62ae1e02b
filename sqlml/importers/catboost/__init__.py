"""CatBoost: estimators and JSON files. catboost itself is not imported."""
