"""Shapes that tests and benchmarks share: prime and real vocabularies, one parent with many
targets, ties."""

from typing import NamedTuple


class HeadCase(NamedTuple):
    parents: int
    edges: int
    vocabulary: int
    width: int
    busy: int = 0  # edges that all hang on parent 0
    bias: bool = False
    softcap: float | None = None
    scale: float = 1.0
    levels: int | None = None  # hidden states and weights take this many values, so that logits tie


CASES = {
    "one_edge": HeadCase(1, 1, 11, 4),
    "prime": HeadCase(37, 61, 997, 16),
    "busy": HeadCase(130, 400, 1009, 16, busy=150),
    "many_chunks": HeadCase(300, 300, 211, 8),
    "head_rules": HeadCase(17, 40, 503, 32, bias=True, softcap=3.0, scale=0.25),
    "ties": HeadCase(20, 200, 101, 2, levels=2),
    "smollm2": HeadCase(5, 9, 49152, 64),
    "gemma3": HeadCase(3, 7, 262144, 16, softcap=30.0),
}
