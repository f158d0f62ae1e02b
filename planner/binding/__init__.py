"""What each argument of a call means: the engine is asked, and nothing is decided yet."""
