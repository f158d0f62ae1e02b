"""The catalog's tables and views, as DDL; docs/format.md describes them.

Programs are stored once each, by content hash; a model's versions point to them. Keys are the
names in lower case, since the engine's own names ignore case. Times are UTC.
"""

from __future__ import annotations

MODELS = """
    SELECT m.name, m.default_version AS version,
           (SELECT count(*) FROM {schema}.catalog_versions w WHERE w.key = m.key) AS versions,
           v.source, v.library, len(v.features) AS features, v.labels, v.outputs, v.bytes,
           (SELECT map_from_entries(list((a.alias, a.version) ORDER BY a.alias))
            FROM {schema}.catalog_aliases a WHERE a.key = m.key) AS aliases,
           (SELECT map_from_entries(list((t.tag, t.value) ORDER BY t.tag))
            FROM {schema}.catalog_tags t WHERE t.key = m.key) AS tags,
           m.comment, m.created_at
    FROM {schema}.catalog_models m
    JOIN {schema}.catalog_versions v ON v.key = m.key AND v.version = m.default_version
"""

VERSIONS = """
    SELECT m.name, v.version, v.version = m.default_version AS is_default,
           (SELECT list(a.alias ORDER BY a.alias) FROM {schema}.catalog_aliases a
            WHERE a.key = v.key AND a.version = v.version) AS aliases,
           v.program AS hash, v.source, v.library, v.path, v.labels, v.outputs, v.bytes, v.options,
           v.verification, v.comment, v.created_at
    FROM {schema}.catalog_versions v JOIN {schema}.catalog_models m ON m.key = v.key
"""

FEATURES = """
    SELECT name, version, position, feature.name AS feature, feature.kind AS kind,
           feature.used AS used
    FROM (
        SELECT m.name, v.version, unnest(v.features) AS feature,
               unnest(range(1, len(v.features) + 1)) AS position
        FROM {schema}.catalog_versions v JOIN {schema}.catalog_models m ON m.key = v.key
    )
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
        last_version INTEGER NOT NULL,
        comment VARCHAR,
        created_at TIMESTAMP NOT NULL
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {schema}.catalog_versions (
        key VARCHAR,
        version INTEGER,
        program VARCHAR NOT NULL,
        features STRUCT(name VARCHAR, kind VARCHAR, used BOOLEAN)[] NOT NULL,
        label_kind VARCHAR,
        labels VARCHAR[],
        outputs VARCHAR[] NOT NULL,
        bytes BIGINT NOT NULL,
        source VARCHAR NOT NULL,
        library VARCHAR NOT NULL,
        path VARCHAR,
        format VARCHAR,
        sha256 VARCHAR,
        options VARCHAR NOT NULL,
        verification VARCHAR,
        comment VARCHAR,
        created_at TIMESTAMP NOT NULL,
        PRIMARY KEY (key, version)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {schema}.catalog_aliases (
        key VARCHAR,
        alias VARCHAR,
        version INTEGER NOT NULL,
        PRIMARY KEY (key, alias)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS {schema}.catalog_tags (
        key VARCHAR,
        tag VARCHAR,
        value VARCHAR NOT NULL,
        PRIMARY KEY (key, tag)
    )
    """,
)

VIEWS: tuple[str, ...] = (
    "CREATE VIEW IF NOT EXISTS {schema}.models AS " + MODELS,
    "CREATE VIEW IF NOT EXISTS {schema}.model_versions AS " + VERSIONS,
    "CREATE VIEW IF NOT EXISTS {schema}.model_features AS " + FEATURES,
)
