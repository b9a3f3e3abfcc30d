"""MERA: Russian data sets in one record format, prompts that vary by record, submissions to its site."""
