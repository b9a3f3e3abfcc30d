"""Log-probability and rank of chosen tokens from hidden states, without an array of tokens by
vocabulary.

An edge is a parent (a hidden state) and a target (a token id).  `reference` is the definition,
`layout` orders the edges on the host, `xla` runs everywhere; `cases` are shared by tests and
benchmarks.
"""
