"""A trainer that saves steps in every way that trainers have, one after the other: a program of its own, without imports
of the package.

    python busy_writer.py RUN VERSIONS NUM_STEPS SEED PAUSE

VERSIONS holds model folders; each step of RUN becomes one of them, some then another.  The last lines of the output are
JSON, one a step: the versions that were whole, the one that stayed at the end (null: the step was removed), and the longest
pause between two writes into one file.
"""

import json
import os
import random
import shutil
import sys
import time
from pathlib import Path

KEPT = 8  # steps; the trainer removes older ones
WEIGHTS = "model.safetensors"
WAYS = ("whole", "in pieces", "saved again", "rewritten", "cut", "linked")


def write(path: Path, content: bytes, pieces: int, mode: str) -> float:
    """Write the file a piece at a time; the longest pause."""
    longest, size = 0.0, -(-len(content) // pieces)
    with path.open(mode, buffering=0) as file:
        for start in range(0, len(content), size):
            before = time.monotonic()
            file.write(content[start : start + size])
            time.sleep(0.002)
            longest = max(longest, time.monotonic() - before)
    return longest


def save(way: str, folder: Path, version: Path) -> float:
    """Save a step; the longest pause in writing."""
    if way == "linked":
        folder.symlink_to(version)
        return 0.0
    hidden = folder if way == "in pieces" else folder.with_name(f"writing-{folder.name}")
    shutil.copytree(version, hidden, ignore=shutil.ignore_patterns(WEIGHTS))
    longest = write(hidden / WEIGHTS, (version / WEIGHTS).read_bytes(), 4, "wb")
    if hidden != folder:
        hidden.rename(folder)
    return longest


def save_again(way: str, folder: Path, version: Path) -> float:
    """Save another version of a step; the longest pause in writing."""
    content = (version / WEIGHTS).read_bytes()
    if way == "saved again":
        (folder / "new").write_bytes(content)
        (folder / "new").replace(folder / WEIGHTS)
    elif way == "rewritten":
        return write(folder / WEIGHTS, content, 8, "r+b")
    elif way == "cut":
        os.truncate(folder / WEIGHTS, len(content) // 2)
        return write(folder / WEIGHTS, content, 4, "r+b")
    elif way == "linked":
        new = folder.with_name("new-link")
        new.symlink_to(version)
        new.replace(folder)
    return 0.0


def last_scored(run: Path) -> int:
    """The step that the reader names in a file beside the run."""
    text = (run.parent / "scored").read_text()
    return int(text or 0)


def remove(folder: Path) -> None:
    folder.unlink() if folder.is_symlink() else shutil.rmtree(folder)


def main(run: Path, versions: Path, num_steps: int, seed: int, pause: float) -> None:
    random.seed(seed)
    versions_of, longest = dict[int, list[str]](), dict[int, float]()
    later = list[tuple[int, int]]()  # (when, which step) is saved again
    for step in range(1, num_steps + 1):
        most_ahead = random.choice((2, 4, KEPT, KEPT + 4))  # of what has been scored
        deadline = time.monotonic() + 15
        while step - last_scored(run) > most_ahead and time.monotonic() < deadline:
            time.sleep(0.005)
        first, second = random.sample(sorted(versions.iterdir()), 2)
        way = WAYS[step % len(WAYS)]
        longest[step] = save(way, run / f"checkpoint-{step}", first)
        versions_of[step] = [first.name]
        if way not in ("whole", "in pieces"):
            versions_of[step].append(second.name)
            later.append((min(step + random.randrange(KEPT), num_steps), step))
        time.sleep(random.random() * pause)
        for _, each in [entry for entry in later if entry[0] == step]:
            folder = run / f"checkpoint-{each}"
            pause_of_writing = save_again(WAYS[each % len(WAYS)], folder, versions / versions_of[each][1])
            longest[each] = max(longest[each], pause_of_writing)
            time.sleep(random.random() * pause)
        if step > KEPT:
            remove(run / f"checkpoint-{step - KEPT}")
        time.sleep(random.random() * pause)
    for step, names in versions_of.items():
        print(json.dumps([step, names, names[-1] if step > num_steps - KEPT else None, longest[step]]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
