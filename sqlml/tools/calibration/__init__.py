"""Measure costs on this machine. The measured costs replace the default costs."""
