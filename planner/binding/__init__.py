"""What each argument of a call means: the engine is asked, but nothing is decided yet."""
