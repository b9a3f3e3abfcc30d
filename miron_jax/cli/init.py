"""`miron-jax init task|model [FOLDER]`: a task or a Flax model of one's own to begin with.

Arrives: what to begin, a folder, a checkpoint.  Leaves: files with comments, which run as they are
(templates/).  It deliberately overwrites no file.
"""

import os
import shlex
from importlib.resources import files

from absl import flags

from miron_jax.errors import InputError, printable
from miron_jax.files.places import is_url, local_path
from miron_jax.files.store import Store

FLAGS = flags.FLAGS
FILES = {"task": ("my_task.yaml", "my_task.jsonl"), "model": ("my_model.py",)}


def command(words: list[str]) -> None:
    if not words or words[0] not in FILES or len(words) > 2:
        raise InputError(
            f"init is given {' '.join(words) or 'nothing'}, expected {' or '.join(FILES)} and "
            "perhaps a folder, such as miron-jax init task my_folder"
        )
    what, folder = (*words, ".")[:2]
    checkpoint = FLAGS.checkpoint
    if checkpoint is not None and what != "model":
        raise InputError("--checkpoint is of init model, which lists its arrays: leave it out")
    store = Store(folder)
    if taken := sorted({*FILES[what]} & {*store.names()}):
        raise InputError(
            f"{folder}/{taken[0]} is there already and is never overwritten: name another folder, "
            f"miron-jax init {what} FOLDER"
        )
    templates = files("miron_jax.cli").joinpath("templates")
    contents = {name: templates.joinpath(f"{name}.txt").read_bytes() for name in FILES[what]}
    if checkpoint is not None:
        contents["my_model.py"] += _arrays_of(checkpoint).encode()
    for name, content in contents.items():
        store.put(name, content)
        print(printable(f"written to {folder}/{name}"))
    if what == "task":
        path = shlex.quote(f"{folder}/my_task.yaml".removeprefix("./"))
        steps = [f"tasks --check={path}", f"eval --task_path={path}"]
    else:
        steps = ["eval --model=my_model:make"]
    if checkpoint is not None:
        place = checkpoint if is_url(checkpoint) else str(local_path(checkpoint).absolute())
        steps[-1] += f" --checkpoint={shlex.quote(place)}"
    where = f"in {folder}: " if what == "model" and folder != "." else ""
    print(printable("\n".join(f"next: {where}miron-jax {step}" for step in steps)))


def _arrays_of(checkpoint: str) -> str:
    """Comments that name the checkpoint's arrays, those of optimizers left out; of a run, those of
    its last step."""
    os.environ["JAX_PLATFORMS"] = "cpu"  # nothing is computed
    from miron_jax.model.checkpoints.checkpoints import checkpoint_folder
    from miron_jax.model.checkpoints.orbax_layout import arrays_of, named_items
    from miron_jax.model.checkpoints.orbax_weights import is_optimizers
    from miron_jax.model.checkpoints.remote import local_copy
    from miron_jax.model.checkpoints.training_run import training_steps

    folder = checkpoint_folder(checkpoint)
    steps = training_steps(folder)
    with local_copy(steps[-1][1] if steps else folder) as step:
        arrays = arrays_of(named_items(step))
    lines = [
        f"{checkpoint} holds these arrays (those of optimizers, and integers, are left out).  They",
        "are read into the params of make() by their names: give these the same names and shapes.",
        "A prefix may stand before all of them, and --param_map renames arrays.",
        *(
            f"    {key.removesuffix('/value')}: {array.dtype} {list(array.shape)}"
            for key, array in arrays.items()
            if "float" in array.dtype and not is_optimizers(array.path)
        ),
    ]
    # names come from a file, and the comments stand in code
    shown = (printable(line).replace("\n", "\\n") for line in lines)
    return "\n" + "".join(f"# {line}\n" for line in shown)
