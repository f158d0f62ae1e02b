"""Models as SQL of databases in which sqlml does not run."""
