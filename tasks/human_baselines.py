"""The published human baselines of MERA and Eval-UA-tion, each with its source.

Arrives: human_baselines.jsonl.  Leaves: `MERA`, `EVAL_UATION`, by data set.  It
deliberately does not know models.

MERA published two sets, by two procedures (miron_jax/humans/votes.py), which must not be mixed:

    A   the table of ai-forever/MERA, humanbenchmarks/README.md (commit 12daebd): samples without 3
        equal votes are dropped, so the easy ones remain: LCS keeps 54 of 100
    B   the dataset cards and the leaderboard's human row: no sample is dropped

Their totals by the site's rule are 0.8878 and 0.8725.  Sizes in A's table that are wrong: ruMultiAr
has not 519 (its annotations give 476), PARus has 500 test records (not 400), ruDetox 800 (not
1000), ruHateSpeech 265 (not 268), and ruEthics' 645 texts are asked three times (1935).  RWSD's
0.837 is 217/259 = 0.8378, truncated.
"""

from miron_jax.definitions.records import HumanBaseline
from miron_jax.tasks.tables import table_rows

_TABLE = "ai-forever/MERA, humanbenchmarks/README.md at 12daebd"
_CARDS = "MERA's dataset cards and leaderboard, mera.a-ai.ru/en/submits/10001"
_UATION = "Eval-UA-tion 1.0, Hamotskyi et al. 2024, UNLP"
_PUBLISHED = {"A": _TABLE, "B": _CARDS, "one annotator": _UATION}
MERA = dict[str, tuple[HumanBaseline, ...]]()
EVAL_UATION = dict[str, tuple[HumanBaseline, ...]]()
for _row in table_rows(__file__, "human_baselines.jsonl"):
    _of_suite = EVAL_UATION if _row["procedure"] == "one annotator" else MERA
    _name = _row.pop("data_set")
    _value = HumanBaseline(**_row, published=_PUBLISHED[_row["procedure"]])
    _of_suite[_name] = (*_of_suite.get(_name, ()), _value)
