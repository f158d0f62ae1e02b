"""Measure costs on this machine, which then replace the costs that sqlml ships."""
