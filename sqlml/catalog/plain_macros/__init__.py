"""Macros with which connections without sqlml's session score."""
