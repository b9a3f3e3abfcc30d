"""Scores or text of one example -> named numbers.  Pure functions."""
