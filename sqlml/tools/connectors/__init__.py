"""Where other tools meet sqlml: each file is what one of them finds by its own entry point."""
