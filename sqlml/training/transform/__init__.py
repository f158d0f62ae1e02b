"""TRANSFORM (..): expressions of a row, and preprocessing functions with their constants."""
