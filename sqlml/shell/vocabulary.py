"""The words of sqlml's statements and functions, which the prompt completes and colours."""

from __future__ import annotations

from sqlml.planner.syntax.forms import FORMS

FUNCTIONS = frozenset(
    {"predict", "predict_proba", "predict_score", "transform", "explain"}
    | {f"ml_{name}" for name in FORMS}
)
"""Functions of models, in lower case."""

KEYWORDS = frozenset(
    "MODEL MODELS VERSION VERSIONS OPTIONS INPUT OUTPUT VERIFY EXPORT ALIAS TAGS CASCADE "
    "RETRAIN PROMOTE".split()
)
"""Words of statements about models that DuckDB's own list lacks."""
