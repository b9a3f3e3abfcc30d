"""The demo: a small Llama that ships in the package, with six checkpoints of its training.

Arrives: nothing.  Leaves: `FOLDER`, a model folder like any other (config.json, tokenizer files)
whose weights lie in steps/<N> as Orbax checkpoints, and their hashes.  It deliberately does not
know how they are read, trained or scored.
"""

from hashlib import sha256
from pathlib import Path

from miron_jax.errors import InputError
from miron_jax.files.regular import read_regular

NAME = "demo"  # what --model calls it
FOLDER = Path(__file__).parent / "data"
SUMS = "SHA256SUMS"  # beside its files: `sha256sum --check SHA256SUMS`


def check() -> None:
    """Raises InputError where a file of the demo is not as it was shipped: a flipped bit makes
    other weights unnoticed."""
    sums = FOLDER / SUMS
    for line in (
        sums.read_text(encoding="ascii", errors="replace").splitlines()
        if sums.is_file()
        else [f"  {SUMS}"]
    ):
        published, _, name = line.partition("  ")
        path = FOLDER / name
        if not path.is_file() or sha256(read_regular(path)).hexdigest() != published:
            raise InputError(f"{path} is not as it was shipped: install miron-jax again")


def write_sums(folder: Path) -> None:
    """Of a folder's files, as sha256sum writes them."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    lines = []
    for path in paths:
        lines.append(
            f"{sha256(read_regular(path)).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        )
    (folder / SUMS).write_text("".join(lines), encoding="ascii")
