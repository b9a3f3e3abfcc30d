"""The Gauntlet's table: 49 benchmarks in six categories, as llm-foundry v0.4.0 publishes them.

Arrives: table.jsonl.  Leaves: `CATEGORIES`.  It deliberately does not know rules.

Numbers of shots and baselines are those of tasks_v0.1.yaml and eval_gauntlet_v0.1.yaml, which
agree.  EVAL_GAUNTLET.md differs: 3 shots, not 10, for enterprise_pii_classification and both
winogender tasks; no baseline for bigbench_strategy_qa; bigbench_dyck_languages listed twice; for
arc_challenge the text and number of lines of arc_easy.  Two files are newer than v0.4.0: siqa,
because all of its answers were "A", and aqua, whose questions began with "Q: " in v0.4.0 (here its
prelimiter adds that).
"""

from miron_jax.tasks.gauntlet.icl_task import IclTask
from miron_jax.tasks.tables import table_rows


def _categories() -> dict[str, tuple[IclTask, ...]]:
    entries = dict[str, tuple[IclTask, ...]]()
    for row in table_rows(__file__):
        category = row.pop("category")
        entries[category] = (*entries.get(category, ()), IclTask(**row))
    return entries


CATEGORIES = _categories()
