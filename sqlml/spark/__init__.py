"""Models in Spark SQL: a session, and a catalog in a directory that all sessions share."""
