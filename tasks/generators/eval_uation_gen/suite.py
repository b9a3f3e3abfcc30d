"""eval-ua-tion-gen as suites: the generated sets with the prompts of the published ones.

Arrives: the sets of table.py.  Leaves: the suites `GEN` and `GEN_TEXT`.  It deliberately does not
know tokenizers or models.
"""

from functools import partial

from miron_jax.tasks.eval_uation.suite import suite_of
from miron_jax.tasks.generators.eval_uation_gen.table import (
    CITATION,
    GENERATED,
    NAME,
    VERSION,
    locate,
)

_generated = partial(
    suite_of, [(generated.data_set, generated.file) for generated in GENERATED], locate, CITATION
)
GEN = _generated(NAME, ("options", "cloze"), f"{NAME} {VERSION}, log-probability")
GEN_TEXT = _generated(f"{NAME}-text", ("text",), f"{NAME} {VERSION}, generated texts")
SUITES = (GEN, GEN_TEXT)
