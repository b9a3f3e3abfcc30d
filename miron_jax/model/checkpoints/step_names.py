"""Names that trainers give to the folders and files of a training run's steps.

Arrives: a name.  Leaves: the step it stands for.  It deliberately does not look into a folder.
"""

import re

# 1000, step_1000, global_step1000, checkpoint-1000; EasyDeL's run-1000
_NAME = re.compile(r"((global_?)?(step|checkpoint|ckpt|run)[-_]?)?(\d+)", re.ASCII)


def step_of(name: str) -> int | None:
    """The step; None: no trainer names one so."""
    match = _NAME.fullmatch(name)
    return None if match is None else int(match[4])
