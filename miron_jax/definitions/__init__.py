"""What a benchmark is: its records and rules, and the examples in its data files.

Arrives: a folder of data files.  Leaves: `Task`s and `Suite`s, which files in tasks/ fill in, and
their examples.  It deliberately does not know few-shot sampling, tokenizers, models or devices.
"""
