"""Folders that `save_to_disk` of Hugging Face's `datasets` writes: the Arrow files of one data set.

Arrives: a folder.  Leaves: its files in order; ValueError says what else the folder is.  It
deliberately does not know what they hold.
"""

import os
from pathlib import Path

from miron_jax.files.readers import Json, parse_json, shown
from miron_jax.files.regular import read_regular

STATE = "state.json"  # of a data set: names of its files in order
SPLITS = "dataset_dict.json"  # of several, each in a folder below: their names


def saved_files(folder: Path) -> list[Path]:
    """Raises ValueError for a folder that holds no data set, or a split of each name."""
    if not os.path.isfile(folder / STATE):
        if os.path.isfile(folder / SPLITS):
            splits = ", ".join(sorted(path.parent.name for path in folder.glob(f"*/{STATE}")))
            raise ValueError(f"it has the splits {splits}: name the folder of one")
        raise ValueError(f"it has no {STATE} of save_to_disk: name its files, as {folder.name}/*")
    try:
        state: Json = parse_json(read_regular(folder / STATE))
        names: list[Json] = [file["filename"] for file in state["_data_files"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{STATE} names no files ({error!s:.80}): save it again") from None
    files = [folder / str(name) for name in names]
    for file in files or [folder]:
        if not os.path.isfile(file) or file.parent != folder:
            raise ValueError(f"{STATE} names {shown(file.name)}, which it lacks: save it again")
    if any(state[key] for key in state if key.startswith("_indices")):
        raise ValueError("its rows have an order of their own: save it by a newer datasets")
    return files
