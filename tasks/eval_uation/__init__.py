"""Eval-UA-tion: the nine published data sets; `suite` puts them together."""
