"""Costs measured on this machine, in place of those that sqlml ships."""
