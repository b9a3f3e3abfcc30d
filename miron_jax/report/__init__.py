"""What a run leaves behind: results.json, samples, the table on screen."""
