"""The commands of the command line that are no SQL: `sqlml calibrate`, `native`, `warm`, `dbt`."""
