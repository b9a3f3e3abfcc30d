"""MERA: Russian data sets in one record format, prompts that vary by record, submissions to its
site.

suite, table      the tasks of each version, their rules and numbers
records           its record format -> examples
rutie             the growing prompt of ruTiE's dialogues
metrics, scoring  of its tasks
submission, site  answers as a submission; the site's own scores of one
"""
