"""The reports of a run: results.json, samples, the table on screen."""
