"""The catalog's tables and views, as DDL.

Programs are stored once each, by content hash; a model's versions point to them. Keys are the
names in lower case, since the engine's own names ignore case. Times are UTC.
"""

from __future__ import annotations

MODELS = """
    SELECT m.name, m.default_version AS version, v.source, v.library, len(v.features) AS features,
           v.labels, v.outputs, v.bytes, m.comment, m.created_at
    FROM {schema}.catalog_models m
    JOIN {schema}.catalog_versions v ON v.key = m.key AND v.version = m.default_version
"""

TABLES: tuple[str, ...] = (
    "CREATE SCHEMA IF NOT EXISTS {schema}",
    """
    CREATE TABLE IF NOT EXISTS {schema}.catalog_programs (
        hash VARCHAR PRIMARY KEY,
        format INTEGER NOT NULL,
        content BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {schema}.catalog_models (
        key VARCHAR PRIMARY KEY,
        name VARCHAR NOT NULL,
        default_version INTEGER NOT NULL,
        comment VARCHAR,
        created_at TIMESTAMP NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {schema}.catalog_versions (
        key VARCHAR,
        version INTEGER,
        program VARCHAR NOT NULL,
        features STRUCT(name VARCHAR, kind VARCHAR)[] NOT NULL,
        label_kind VARCHAR,
        labels VARCHAR[],
        outputs VARCHAR[] NOT NULL,
        bytes BIGINT NOT NULL,
        source VARCHAR NOT NULL,
        library VARCHAR NOT NULL,
        options VARCHAR NOT NULL,
        created_at TIMESTAMP NOT NULL,
        PRIMARY KEY (key, version)
    )
    """,
)

VIEWS: tuple[str, ...] = (
    "CREATE VIEW IF NOT EXISTS {schema}.models AS " + MODELS,
    """
    CREATE VIEW IF NOT EXISTS {schema}.model_versions AS
    SELECT m.name, v.version, v.version = m.default_version AS is_default, v.program AS hash,
           v.source, v.library, v.labels, v.outputs, v.bytes, v.options, v.created_at
    FROM {schema}.catalog_versions v JOIN {schema}.catalog_models m ON m.key = v.key
    """,
    """
    CREATE VIEW IF NOT EXISTS {schema}.model_features AS
    SELECT name, version, position, feature.name AS feature, feature.kind AS kind,
           feature.kind <> 'any' AS used
    FROM (
        SELECT m.name, v.version, unnest(v.features) AS feature,
               unnest(range(1, len(v.features) + 1)) AS position
        FROM {schema}.catalog_versions v JOIN {schema}.catalog_models m ON m.key = v.key
    )
    """,
)
