"""How many tokens a checkpoint was trained on, where it says so.

Arrives: a checkpoint, and the name that a user gives to its model.  Leaves: a count.  It
deliberately guesses nothing from steps: no trainer writes the tokens of one.
"""

import json
import re
from pathlib import Path

from miron_jax.files.regular import read_regular
from miron_jax.model.checkpoints.training_run import Checkpoint

# of transformers' Trainer, with include_num_input_tokens_seen
TRAINER_STATE = "trainer_state.json"
# revisions of OLMo: stage1-step1000-tokens5B
_IN_NAME = re.compile(r"(?:^|[-_@ ])tokens(\d+(?:\.\d+)?)([KMBT]?)(?=$|[-_ ])")
_LATER_STAGE = re.compile(r"stage[2-9]")  # whose tokens follow those of the first, not counted
_UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def training_tokens(checkpoint: Checkpoint, model: str | None) -> int | None:
    """The tokens that the trainer's state beside the weights counts, or that the checkpoint's name
    states; None: neither does.  `model`: what a user calls a model that has no steps."""
    if checkpoint.folder is None or checkpoint.average:
        return None
    named = checkpoint.folder.name
    if checkpoint.step is None and model is not None:
        named = f"{named} {Path(model).name}"
    return _of_state(checkpoint.folder) or _of_name(named)


def _of_state(folder: Path) -> int | None:
    try:
        state = json.loads(read_regular(folder / TRAINER_STATE))
    except (OSError, ValueError):  # absent, or not one of transformers: it says nothing
        return None
    seen = state.get("num_input_tokens_seen") if isinstance(state, dict) else None
    return seen if isinstance(seen, int) and seen > 0 else None


def _of_name(name: str) -> int | None:
    match = _IN_NAME.search(name)
    if match is None or _LATER_STAGE.search(name):
        return None
    return round(float(match[1]) * _UNITS[match[2]])
