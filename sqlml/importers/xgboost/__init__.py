"""XGBoost: estimators, Boosters and JSON or UBJSON files. xgboost itself is not imported."""
