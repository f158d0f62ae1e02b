"""Cascades and top-K filters: small models learned beside a model (Willump, section 4)."""
