"""Do all readers end on every damaged input with a value or with one sentence, in time and in
memory?

    python benchmarks/fuzz.py --seconds=120            # shared by all targets
    python benchmarks/fuzz.py --target=yaml --inputs=5000 --seed=7
    python benchmarks/fuzz.py --target=yaml --seed=7 --first=311 --inputs=1    # one finding again

A target writes a sane input into a folder and reads it again; each input here is such a folder with
one file damaged, in its bytes or in its structure.  A worker process reads them with 2 GB of memory
beyond what it has at the start and 10 s each.  An input that is neither accepted nor refused by
InputError is a finding: it is kept, and the flags that read it again are printed.  The last line is
JSON.
"""

import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from absl import app, flags

if TYPE_CHECKING:
    from miron_jax.files.readers import Json

SECONDS, BYTES = 10.0, 2 << 30  # that one input may take
MAX_KEPT = 5  # findings of one line of the code

FLAGS = flags.FLAGS


class Target(NamedTuple):
    name: str
    write: Callable[[Path], object]  # a sane input into this empty folder
    read: Callable[[Path], object]  # this folder; raises InputError to refuse it


def targets() -> list[Target]:
    """Readers of data files and documents, of a run's files, and of model folders."""
    import fuzz_data
    import fuzz_models
    import fuzz_outputs

    return [*fuzz_data.TARGETS, *fuzz_outputs.TARGETS, *fuzz_models.TARGETS]


# ---- damage ----

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
HOSTILE_BYTES = (
    b"", b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b"\t", b'"', b"'", b"\\",
    b"{", b"}", b"[", b"]",
    b":", b",", b"-", b"&a ", b"*a ", b"<<: *a\n", b"? ", b"!!int ''", b"!!bool x",
    b"!!timestamp x", b"2024-13-45",
    b"0x" + b"f" * 5000, b"9" * 5000, b"1e999", b"NaN", b"-Infinity", b"null", b"true", b"\\ud83d",
    b"[" * 5000, b"{" * 5000,
    b"(" * 300, b"-" * 3000, b"{a:>700000000}", b"{a!r}", b"{a.b}", b"{0}", b"{}", b"a" * 100_000,
    b"\xd0\x96" * 50,
    "\u2028".encode(), b"\x1b[31m", b"1:59:59", b"~", b"|", b">", b"%YAML 9.9", b"@", b"`",
    b"&a [*a]",
)  # fmt: skip
HOSTILE_VALUES: "tuple[Json, ...]" = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 10**400, 0.5, -1.5, 1e308, float("nan"),
    float("inf"), "", " ",
    "\0", "\ud83d", "../../x", "/etc", "x" * 300, "x" * 100_000, "{a}", "{premise:>700000000}",
    "2024-01-01", "[1, 2]",
    [], [[]], [None], [1, 2], ["a"], {}, {"a": 1}, {"": None}, [[[[[[1]]]]]], [0] * 10_000,
    {str(i): i for i in range(1000)},
    "\u202e", "\x1b]0;a\7", "${a}", 10**9, "9" * 5000, "-" * 3000 + "1", "1" + "+1" * 3000,
    "((" * 200, "1/0", "9**9**9",
)  # fmt: skip


def damage(content: bytes, rng: random.Random) -> bytes:
    """The file with one to four mistakes."""
    ways = [_bits, _cut, _insert, _repeat, _swap, _token, _structure, _structure, _structure]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = rng.choice(ways)(content, rng)
    return content


def _bits(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 1, 2, 16))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _span(content: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice((0, 1, 2, 4, 8, 64, 1024)))


def _cut(content: bytes, rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] if rng.random() < 0.3 else content[:start] + content[end:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:start] + rng.choice(HOSTILE_BYTES) + content[rng.choice((start, end)) :]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    start, end = _span(content, rng)
    return content[:end] + content[start:end] * rng.choice((1, 2, 100)) + content[end:]


def _swap(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def _token(content: bytes, rng: random.Random) -> bytes:
    """Replaces one number or text of the file."""
    matches = list(rng.choice((_NUMBER, _TEXT)).finditer(content[: 1 << 16]))
    if not matches:
        return _insert(content, rng)
    start, end = rng.choice(matches).span()
    other = (
        json.dumps(rng.choice(HOSTILE_VALUES)).encode()
        if rng.random() < 0.5
        else rng.choice(HOSTILE_BYTES)
    )
    return content[:start] + other + content[end:]


def _structure(content: bytes, rng: random.Random) -> bytes:
    """Replaces, deletes, repeats or renames one value of JSON, which is the file or one of its
    lines."""
    lines = content.split(b"\n")
    for at, part in [(None, content), *((i, lines[i]) for i in [rng.randrange(len(lines))])]:
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        text = json.dumps(_other(value, rng), ensure_ascii=rng.random() < 0.5).encode(
            "utf-8", "surrogatepass"
        )
        return text if at is None else b"\n".join([*lines[:at], text, *lines[at + 1 :]])
    return _token(content, rng)


def _other(value: "Json", rng: random.Random, depth: int = 0) -> "Json":
    keys = list(
        value.keys()
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else ()
    )
    if not keys or depth > 20 or rng.random() < 0.15:
        return rng.choice(HOSTILE_VALUES)
    key = rng.choice(keys)
    match rng.randrange(8):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[rng.choice(("", "a", "\0", "x" * 300, str(rng.choice(keys))))] = value.pop(key)
        case 2 if isinstance(value, list):
            value.append(value[key])
        case _:
            value[key] = _other(value[key], rng, depth + 1)
    return value


# ---- running ----


def work(name: str, seed: int, pipe: Connection) -> None:
    """In a process of its own: receives numbers of inputs and sends (verdict, place) of each."""
    from miron_jax.errors import InputError

    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libraries print about damage
    target = next(target for target in targets() if target.name == name)
    with tempfile.TemporaryDirectory(prefix="miron-fuzz-") as scratch:
        sane, folder = Path(scratch) / "sane", Path(scratch) / "input"
        sane.mkdir()
        target.write(sane)
        shutil.copytree(sane, folder)
        target.read(folder)  # raises when the target itself is wrong
        pipe.send(("ready", str(folder)))
        # The kernel's count, not Python's: libraries allocate memory too.  Address space alone
        # costs nothing.
        match = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert match is not None
        limit = (int(match[1]) << 10) + BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while (number := pipe.recv()) is not None:
            make_input(sane, folder, random.Random(f"{seed} {name} {number}"))
            try:
                target.read(folder)
                pipe.send(("accepted", ""))
            except InputError as error:
                message = str(error)
                one_line = "\n" not in message
                pipe.send(
                    ("refused", "")
                    if one_line
                    else ("traceback", f"more than a line: {message!r:.200}")
                )
            except BaseException as error:
                pipe.send(("traceback", f"{place_of(error)}: {str(error)[:120]!r}"))


def place_of(error: BaseException) -> str:
    """The type of an error and the innermost line of this project that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = (
        f for f in reversed(frames) if "site-packages" not in f.filename and f.filename[0] == "/"
    )
    frame = next(ours, frames[-1])
    return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"


def make_input(sane: Path, folder: Path, rng: random.Random) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sane, folder)
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    path.write_bytes(damage(path.read_bytes(), rng))


class Worker:
    """A process that reads damaged inputs of one target."""

    def __init__(self, name: str, seed: int) -> None:
        # everything is imported, and jax has no backend yet
        context = multiprocessing.get_context("fork")
        self._pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(name, seed, other), daemon=True)
        self.process.start()
        other.close()
        if not self._pipe.poll(300):
            raise TimeoutError(f"{name}: its sane input is not read in 300 s")
        self.folder = Path(self._pipe.recv()[1])

    def read(self, number: int) -> tuple[str, str]:
        """(accepted, refused, traceback or hang; the place and message of a finding)."""
        self._pipe.send(number)
        try:
            if self._pipe.poll(SECONDS):
                return self._pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            return "traceback", f"the process died with {self.process.exitcode}"
        return "hang", f"more than {SECONDS:.0f} s"

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        shutil.rmtree(self.folder.parent, ignore_errors=True)


def fuzz(
    name: str, seed: int, first: int, count: int | None, seconds: float, keep: Path
) -> Counter[str]:
    """Numbers of inputs and of verdicts of one target."""
    counts: Counter[str] = Counter()
    places: Counter[str] = Counter()
    worker, number, deadline = Worker(name, seed), first, time.monotonic() + seconds
    while number < first + count if count is not None else time.monotonic() < deadline:
        verdict, finding = worker.read(number)
        counts["inputs"] += 1
        counts[verdict] += 1
        if verdict in ("traceback", "hang"):
            place = finding.partition(": ")[0]
            places[place] += 1
            if places[place] <= MAX_KEPT:
                kept = keep / f"{name}-{seed}-{number}"
                shutil.copytree(worker.folder, kept, dirs_exist_ok=True)
                again = f"--target={name} --seed={seed} --first={number} --inputs=1"
                print(f"{name}: {verdict}: {finding}; kept in {kept}; again: {again}", flush=True)
        if verdict == "hang" or not worker.process.is_alive():
            worker.end()
            worker = Worker(name, seed)
        number += 1
    worker.end()
    return counts


def main(rest: Sequence[str]) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    names = [target.name for target in targets()]
    if unknown := set(FLAGS.target or ()) - set(names):
        sys.exit(f"--target: {', '.join(sorted(unknown))} is none of {', '.join(names)}")
    names = FLAGS.target or names
    total: Counter[str] = Counter()
    for name in names:
        share = FLAGS.seconds / len(names)
        counts = fuzz(name, FLAGS.seed, FLAGS.first, FLAGS.inputs, share, Path(FLAGS.keep))
        print(
            f"{name}: "
            f"{', '.join(f'{count} {verdict}' for verdict, count in sorted(counts.items()))}",
            flush=True,
        )
        total += counts
    document = {
        "inputs": total["inputs"],
        "refused": total["refused"],
        "accepted": total["accepted"],
    }
    print(
        json.dumps(
            {
                **document,
                "tracebacks": total["traceback"],
                "hangs": total["hang"],
                "seed": FLAGS.seed,
            }
        )
    )


if __name__ == "__main__":  # not when a file of targets imports `Target`
    flags.DEFINE_integer("seed", 0, "Seed of all damage.")
    flags.DEFINE_float(
        "seconds", 120.0, "Seconds of all targets together; each has an equal share."
    )
    flags.DEFINE_integer("inputs", None, "Inputs of each target, instead of --seconds.")
    flags.DEFINE_integer("first", 0, "Number of the first input.")
    flags.DEFINE_list("target", None, "Names of targets; absent: all.")
    flags.DEFINE_string("keep", "fuzz-findings", "Folder of inputs that are findings.")
    app.run(main)
