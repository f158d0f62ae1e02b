"""The catalog's tables and views, as DDL; docs/format.md describes them.

Each Program is stored once, by its content hash. Keys are names after `fold`, because names in the
engine ignore case in ASCII. Times are UTC. All functions are called by their full names, because a
macro in the file could hide a function with a bare name.
"""

from __future__ import annotations

MODELS = """
    SELECT m.name, m.default_version AS version,
           (SELECT system.main.count(*) FROM {schema}.catalog_versions w
            WHERE w.key = m.key) AS versions,
           v.source, v.library, system.main.len(v.features) AS features, v.labels, v.outputs,
           v.bytes,
           (SELECT system.main.map_from_entries(
                system.main.list(system.main.row(a.alias, a.version) ORDER BY a.alias))
            FROM {schema}.catalog_aliases a WHERE a.key = m.key) AS aliases,
           (SELECT system.main.map_from_entries(
                system.main.list(system.main.row(t.tag, t.value) ORDER BY t.tag))
            FROM {schema}.catalog_tags t WHERE t.key = m.key) AS tags,
           m.comment, m.created_at
    FROM {schema}.catalog_models m
    JOIN {schema}.catalog_versions v ON v.key = m.key AND v.version = m.default_version
"""

VERSIONS = """
    SELECT m.name, v.version, v.version = m.default_version AS is_default,
           (SELECT system.main.list(a.alias ORDER BY a.alias) FROM {schema}.catalog_aliases a
            WHERE a.key = v.key AND a.version = v.version) AS aliases,
           v.program AS hash, v.source, v.library, v.path, v.labels, v.outputs, v.bytes, v.options,
           v.verification, v.comment, v.created_at
    FROM {schema}.catalog_versions v JOIN {schema}.catalog_models m ON m.key = v.key
"""

FEATURES = """
    SELECT name, version, position, system.main.struct_extract(feature, 'name') AS feature,
           system.main.struct_extract(feature, 'kind') AS kind,
           system.main.struct_extract(feature, 'used') AS used
    FROM (
        SELECT m.name, v.version, system.main.unnest(v.features) AS feature,
               system.main.unnest(system.main.range(
                   1, system.main."+"(system.main.len(v.features), 1))) AS position
        FROM {schema}.catalog_versions v JOIN {schema}.catalog_models m ON m.key = v.key
    )
"""


def _define_table(name: str, columns: str) -> str:
    return f"CREATE TABLE IF NOT EXISTS {{schema}}.{name} ({columns})"


SMALL_MODELS = "catalog_small_models"
TRAININGS = "catalog_trainings"
ESTIMATORS = "catalog_estimators"
LATER_TABLES = (SMALL_MODELS, TRAININGS, ESTIMATORS)
"""Tables that files of an older sqlml lack until the first write."""

TABLES: tuple[str, ...] = (
    "CREATE SCHEMA IF NOT EXISTS {schema}",
    _define_table(
        "catalog_programs",
        "hash VARCHAR PRIMARY KEY, format INTEGER NOT NULL, content BLOB NOT NULL",
    ),
    _define_table(
        "catalog_models",
        """
        key VARCHAR PRIMARY KEY, name VARCHAR NOT NULL,
        default_version INTEGER NOT NULL, last_version INTEGER NOT NULL,
        comment VARCHAR, created_at TIMESTAMP NOT NULL
        """,
    ),
    _define_table(
        "catalog_versions",
        """
        key VARCHAR, version INTEGER, program VARCHAR NOT NULL,
        features STRUCT(name VARCHAR, kind VARCHAR, used BOOLEAN)[] NOT NULL,
        label_kind VARCHAR, labels VARCHAR[], outputs VARCHAR[] NOT NULL, bytes BIGINT NOT NULL,
        source VARCHAR NOT NULL, library VARCHAR NOT NULL,
        path VARCHAR, format VARCHAR, sha256 VARCHAR,
        options VARCHAR NOT NULL, verification VARCHAR, comment VARCHAR,
        created_at TIMESTAMP NOT NULL,
        PRIMARY KEY (key, version)
        """,
    ),
    _define_table(
        "catalog_aliases",
        "key VARCHAR, alias VARCHAR, version INTEGER NOT NULL, PRIMARY KEY (key, alias)",
    ),
    _define_table(
        "catalog_tags", "key VARCHAR, tag VARCHAR, value VARCHAR NOT NULL, PRIMARY KEY (key, tag)"
    ),
    _define_table(
        SMALL_MODELS,
        """
        key VARCHAR, version INTEGER, kind VARCHAR,
        program VARCHAR NOT NULL, facts VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL,
        PRIMARY KEY (key, version, kind)
        """,
    ),
)

TRAINING_TABLES: tuple[str, ...] = tuple(
    _define_table(
        name,
        f"""
        key VARCHAR, version INTEGER, {content} NOT NULL, created_at TIMESTAMP NOT NULL,
        PRIMARY KEY (key, version)
        """,
    )
    for name, content in ((TRAININGS, "facts VARCHAR"), (ESTIMATORS, "pickled BLOB"))
)
"""Tables that are created with the first trained model."""

STORED_PREFIX = "sqlml_open_a_session_first_"
"""The prefix of functions in views and macros, which is a hint in the engine's error message."""

HASH_DIGITS = 24
"""The digits of a Program's hash that follow the prefix."""

MACRO_TABLES: tuple[str, ...] = (
    _define_table(
        "catalog_calls",
        """
        key VARCHAR, kind VARCHAR, macro VARCHAR NOT NULL,
        function VARCHAR, arguments VARCHAR[], result VARCHAR,
        PRIMARY KEY (key, kind)
        """,
    ),
    _define_table("catalog_stale", "key VARCHAR NOT NULL, macro VARCHAR"),
    _define_table("catalog_compiled", "key VARCHAR PRIMARY KEY, content VARCHAR NOT NULL"),
)
"""The tables of the macros for plain connections (`catalog/scoring_macros.py`)."""

CHOOSERS: str = _define_table(
    "catalog_choosers",
    """
    kind VARCHAR NOT NULL, prefix VARCHAR NOT NULL, macro VARCHAR NOT NULL,
    names VARCHAR[] NOT NULL, by_digit BOOLEAN NOT NULL
    """,
)
"""The table of the macros that choose a model (`catalog/scoring_macros.py`)."""

VIEWS = {"models": MODELS, "model_versions": VERSIONS, "model_features": FEATURES}
"""Maps views for other clients to queries. Views may be forged, so sqlml reads the tables."""
