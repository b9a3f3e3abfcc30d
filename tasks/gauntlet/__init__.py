"""The Mosaic Eval Gauntlet v0.1.0, and gauntlets of the user's own in the same yaml files."""
