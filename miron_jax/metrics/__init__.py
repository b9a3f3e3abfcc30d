"""Scores or text of one example -> named numbers.  Pure functions; nothing is imported here."""
