"""Measure costs on this machine, to be used instead of those that sqlml ships."""
