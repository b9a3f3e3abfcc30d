"""Do all readers end every damaged input by a value or by one sentence, in time and in memory?

    python benchmarks/fuzz.py --seconds=120            # shared by all targets
    python benchmarks/fuzz.py --target=yaml --inputs=5000 --seed=7
    python benchmarks/fuzz.py --target=yaml --seed=7 --first=311 --inputs=1    # one finding again

A target writes a sane input into a folder and reads it again; each input here has one file of it damaged, by bytes or by its
structure.  A worker process reads them under a limit of 2 GB beyond what it has at the start and 10 s each.  What is neither
accepted nor an InputError is a finding: the input is kept and how to see it again is printed.  The last line is JSON.
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
from typing import Any, NamedTuple

from absl import app, flags

SECONDS, BYTES = 10.0, 2 << 30  # that one input may take
SHOWN = 5  # findings of one place in the code that are kept

FLAGS = flags.FLAGS


class Target(NamedTuple):
    name: str
    write: Callable[[Path], Any]  # a sane input, as files of this empty folder
    read: Callable[[Path], Any]  # of the folder; raises InputError for what it refuses


def targets() -> list[Target]:
    """Readers of data files and documents, and of model folders."""
    import fuzz_data
    import fuzz_models

    return [*fuzz_data.TARGETS, *fuzz_models.TARGETS]


# ---- damage ----

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*"')
HOSTILE_BYTES = (
    b"", b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b"\t", b'"', b"'", b"\\", b"{", b"}", b"[", b"]",
    b":", b",", b"-", b"&a ", b"*a ", b"<<: *a\n", b"? ", b"!!int ''", b"!!bool x", b"!!timestamp x", b"2024-13-45",
    b"0x" + b"f" * 5000, b"9" * 5000, b"1e999", b"NaN", b"-Infinity", b"null", b"true", b"\\ud83d", b"[" * 5000, b"{" * 5000,
    b"(" * 300, b"-" * 3000, b"{a:>700000000}", b"{a!r}", b"{a.b}", b"{0}", b"{}", b"a" * 100_000, b"\xd0\x96" * 50,
    "\u2028".encode(), b"\x1b[31m", b"1:59:59", b"~", b"|", b">", b"%YAML 9.9", b"@", b"`", b"&a [*a]",
)  # fmt: skip
HOSTILE_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**30, 10**400, 0.5, -1.5, 1e308, float("nan"), float("inf"), "", " ",
    "\0", "\ud83d", "../../x", "/etc", "x" * 300, "x" * 100_000, "{a}", "{premise:>700000000}", "2024-01-01", "[1, 2]",
    [], [[]], [None], [1, 2], ["a"], {}, {"a": 1}, {"": None}, [[[[[[1]]]]]], [0] * 10_000, {str(i): i for i in range(1000)},
    "\u202e", "\x1b]0;a\7", "${a}", 10**9, "9" * 5000, "-" * 3000 + "1", "1" + "+1" * 3000, "((" * 200, "1/0", "9**9**9",
)  # fmt: skip


def damage(content: bytes, rng: random.Random) -> bytes:
    """The file with one to four mistakes."""
    ways = [_bits, _cut, _insert, _repeat, _swap, _token, _structure, _structure, _structure]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        content = rng.choice(ways)(content, rng)
    return content


def _bits(content: bytes, rng: random.Random) -> bytes:
    found = bytearray(content or b"\0")
    for _ in range(rng.choice((1, 1, 2, 16))):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _place(content: bytes, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + rng.choice((0, 1, 2, 4, 8, 64, 1024)))


def _cut(content: bytes, rng: random.Random) -> bytes:
    start, end = _place(content, rng)
    return content[:start] if rng.random() < 0.3 else content[:start] + content[end:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    start, end = _place(content, rng)
    return content[:start] + rng.choice(HOSTILE_BYTES) + content[rng.choice((start, end)) :]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    start, end = _place(content, rng)
    return content[:end] + content[start:end] * rng.choice((1, 2, 100)) + content[end:]


def _swap(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"\n".join(lines)


def _token(content: bytes, rng: random.Random) -> bytes:
    """One number or text of the file becomes another."""
    found = list(rng.choice((_NUMBER, _TEXT)).finditer(content[: 1 << 16]))
    if not found:
        return _insert(content, rng)
    start, end = rng.choice(found).span()
    other = json.dumps(rng.choice(HOSTILE_VALUES)).encode() if rng.random() < 0.5 else rng.choice(HOSTILE_BYTES)
    return content[:start] + other + content[end:]


def _structure(content: bytes, rng: random.Random) -> bytes:
    """One value of JSON (the file, or one of its lines) becomes another, goes, or comes under another name."""
    lines = content.split(b"\n")
    for at, part in [(None, content), *((i, lines[i]) for i in [rng.randrange(len(lines))])]:
        try:
            value = json.loads(part)
        except (ValueError, RecursionError):
            continue
        told = json.dumps(_other(value, rng), ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
        return told if at is None else b"\n".join([*lines[:at], told, *lines[at + 1 :]])
    return _token(content, rng)


def _other(value: Any, rng: random.Random, depth: int = 0) -> Any:
    inner = list(value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ())
    if not inner or depth > 20 or rng.random() < 0.15:
        return rng.choice(HOSTILE_VALUES)
    key = rng.choice(inner)
    match rng.randrange(8):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[rng.choice(("", "a", "\0", "x" * 300, str(rng.choice(inner))))] = value.pop(key)
        case 2 if isinstance(value, list):
            value.append(value[key])
        case _:
            value[key] = _other(value[key], rng, depth + 1)
    return value


# ---- running ----


def work(name: str, seed: int, ways: Connection) -> None:
    """In a process of its own: reads numbers of inputs, answers what became of each."""
    from miron_jax.errors import InputError

    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what libraries tell there of damage is not looked at
    target = next(own for own in targets() if own.name == name)
    with tempfile.TemporaryDirectory(prefix="miron-fuzz-") as scratch:
        sane, folder = Path(scratch) / "sane", Path(scratch) / "input"
        sane.mkdir()
        target.write(sane)
        shutil.copytree(sane, folder)
        target.read(folder)  # raises where the target itself is wrong
        ways.send(("ready", str(folder)))
        # The kernel's count, not Python's: libraries ask for memory too.  Address space alone costs nothing.
        held = int(re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) << 10  # pyright: ignore
        resource.setrlimit(resource.RLIMIT_DATA, (held + BYTES, held + BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        while (number := ways.recv()) is not None:
            make_input(sane, folder, random.Random(f"{seed} {name} {number}"))
            try:
                target.read(folder)
                ways.send(("accepted", ""))
            except InputError as error:
                told = str(error)
                ways.send(("refused", "") if "\n" not in told else ("traceback", f"more than a line: {told!r:.200}"))
            except BaseException as error:
                frames = traceback.extract_tb(error.__traceback__)
                own = next(
                    (f for f in reversed(frames) if "site-packages" not in f.filename and f.filename[0] == "/"),
                    frames[-1],
                )
                place = f"{type(error).__name__} at {own.filename}:{own.lineno}"
                ways.send(("traceback", f"{place}: {str(error)[:120]!r}"))


def make_input(sane: Path, folder: Path, rng: random.Random) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sane, folder)
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    path.write_bytes(damage(path.read_bytes(), rng))


class Worker:
    """A process that reads damaged inputs of one target."""

    def __init__(self, name: str, seed: int) -> None:
        context = multiprocessing.get_context("fork")  # all is imported, and jax has started nothing
        self._ways, other = context.Pipe()
        self.process = context.Process(target=work, args=(name, seed, other), daemon=True)
        self.process.start()
        other.close()
        if not self._ways.poll(300):
            raise TimeoutError(f"{name}: its sane input is not read in 300 s")
        self.folder = Path(self._ways.recv()[1])

    def read(self, number: int) -> tuple[str, str]:
        """What became of an input: accepted, refused, traceback or hang; and where."""
        self._ways.send(number)
        try:
            if self._ways.poll(SECONDS):
                return self._ways.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            return "traceback", f"the process died with {self.process.exitcode}"
        return "hang", f"more than {SECONDS:.0f} s"

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        shutil.rmtree(self.folder.parent, ignore_errors=True)


def fuzz(name: str, seed: int, first: int, count: int | None, seconds: float, keep: Path) -> Counter[str]:
    """Counts of one target."""
    counts: Counter[str] = Counter()
    places: Counter[str] = Counter()
    worker, number, until = Worker(name, seed), first, time.monotonic() + seconds
    while number < first + count if count is not None else time.monotonic() < until:
        verdict, where = worker.read(number)
        counts["inputs"] += 1
        counts[verdict] += 1
        if verdict in ("traceback", "hang"):
            place = where.partition(": ")[0]
            places[place] += 1
            if places[place] <= SHOWN:
                kept = keep / f"{name}-{seed}-{number}"
                shutil.copytree(worker.folder, kept, dirs_exist_ok=True)
                again = f"--target={name} --seed={seed} --first={number} --inputs=1"
                print(f"{name}: {verdict}: {where}; kept in {kept}; again: {again}", flush=True)
        if verdict == "hang" or not worker.process.is_alive():
            worker.end()
            worker = Worker(name, seed)
        number += 1
    worker.end()
    return counts


def main(rest: Sequence[str]) -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    names = [own.name for own in targets()]
    if unknown := set(FLAGS.target or ()) - set(names):
        sys.exit(f"--target: {', '.join(sorted(unknown))} is none of {', '.join(names)}")
    names = FLAGS.target or names
    total: Counter[str] = Counter(dict.fromkeys(("inputs", "refused", "accepted", "traceback", "hang"), 0))
    for name in names:
        share = FLAGS.seconds / len(names)
        counts = fuzz(name, FLAGS.seed, FLAGS.first, FLAGS.inputs, share, Path(FLAGS.keep))
        print(f"{name}: {', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}", flush=True)
        total += counts
        total.update(dict.fromkeys(("traceback", "hang", "accepted", "refused"), 0))
    told = {"inputs": total["inputs"], "refused": total["refused"], "accepted": total["accepted"]}
    print(json.dumps({**told, "tracebacks": total["traceback"], "hangs": total["hang"], "seed": FLAGS.seed}))


if __name__ == "__main__":  # not where a file of targets imports the record above
    flags.DEFINE_integer("seed", 0, "Seed of all damage.")
    flags.DEFINE_float("seconds", 120.0, "Of all targets together; each has an equal share.")
    flags.DEFINE_integer("inputs", None, "Inputs of each target, instead of --seconds.")
    flags.DEFINE_integer("first", 0, "Number of the first input.")
    flags.DEFINE_list("target", None, "Names of targets; absent: all.")
    flags.DEFINE_string("keep", "fuzz-findings", "Folder of inputs that are findings.")
    app.run(main)
