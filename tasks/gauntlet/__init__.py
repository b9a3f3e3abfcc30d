"""The Mosaic Eval Gauntlet v0.1.0, and users' gauntlets in the same yaml files."""
