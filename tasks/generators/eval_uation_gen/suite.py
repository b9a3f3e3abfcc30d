"""eval-ua-tion-gen as suites: the generated sets with the prompts of the published ones.

Arrives: the sets of sets.py.  Leaves: the suites `GEN` and `GEN_TEXT`.  It deliberately does not know tokenizers or models.
"""

from miron_jax.definitions.records import AnswerProfile, Profile, Suite, Task
from miron_jax.tasks.eval_uation.suite import no_composites, options_task, text_task
from miron_jax.tasks.generators.eval_uation_gen.rows import VERSION
from miron_jax.tasks.generators.eval_uation_gen.sets import CITATION, GENERATED, NAME, locate

_PROTOCOL = f"{NAME} {VERSION}, {{}}"
GEN: Suite[Task[Profile]] = Suite(
    NAME,
    tuple(
        options_task(generated.data_set, form, NAME, generated.file, CITATION, _PROTOCOL.format("log-probability"))
        for generated in GENERATED
        for form in (("options", "cloze") if generated.shape == "story" else ("options",))
    ),
    no_composites,
    locate,
)
GEN_TEXT: Suite[Task[AnswerProfile]] = Suite(
    f"{NAME}-text",
    tuple(
        text_task(
            generated.data_set, "text", f"{NAME}-text", generated.file, CITATION, _PROTOCOL.format("generated texts")
        )
        for generated in GENERATED
    ),
    no_composites,
    locate,
)
SUITES = (GEN, GEN_TEXT)
