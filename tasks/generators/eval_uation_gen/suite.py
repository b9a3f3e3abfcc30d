"""eval-ua-tion-gen as suites: the generated sets with the prompts of the published ones.

Arrives: the sets of sets.py.  Leaves: the suites `GEN` and `GEN_TEXT`.  It deliberately does not know tokenizers or models.
"""

from miron_jax.tasks.eval_uation.suite import suite_of
from miron_jax.tasks.generators.eval_uation_gen.rows import VERSION
from miron_jax.tasks.generators.eval_uation_gen.sets import CITATION, GENERATED, NAME, locate

_SETS = [(generated.data_set, generated.file) for generated in GENERATED]
GEN = suite_of(NAME, _SETS, ("options", "cloze"), f"{NAME} {VERSION}, log-probability", CITATION, locate)
GEN_TEXT = suite_of(f"{NAME}-text", _SETS, ("text",), f"{NAME} {VERSION}, generated texts", CITATION, locate)
SUITES = (GEN, GEN_TEXT)
