"""The decoder, its description and the readers of its checkpoints.  Import the modules; nothing is imported here."""
