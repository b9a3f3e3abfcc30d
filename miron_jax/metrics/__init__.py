"""Scores or text of one example -> named numbers.  Pure functions.

choices     losses of the choices: normalizers, the tie rule, accuracies and probabilities
answers     completions: normalizers and matches
programs    pass@k; cuts programs out of completions
cloze       a target's probability and ranks
detox       MERA's ruDetox; calibration: the tables of its classifiers
properties  by a metric's name: is it a share, is less better
"""
