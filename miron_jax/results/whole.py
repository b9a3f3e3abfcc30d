"""Writes results.json and samples of a folder, synced and replaced together: at every moment the
folder holds the whole former ones or the whole new ones.

Arrives: a store, a folder in it, a `RunResult` and its samples.  Leaves: files, or the results that
count.  It deliberately does not know configurations.

    FOLDER/.partial/samples/..      first all samples are written here
    FOLDER/.partial/results.json    then this: from here on the new results count, also if a kill
                                    comes now.  It has size and digest of each sample file
    FOLDER/samples/.., results.json then they are moved here, results.json last

An object store has no rename: samples are put there one by one, then results.json.  Whoever reads
meanwhile sees that sizes or digests are others.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from miron_jax.files.durable import (
    make_folder,
    move,
    names_in,
    remove,
    remove_folder,
    sync_folder,
    write_new,
    write_whole,
)
from miron_jax.files.readers import parse_json
from miron_jax.files.store import Store
from miron_jax.results.document import run_json, run_of, strict_json
from miron_jax.results.records import RunResult, SampleFile

RESULTS = "results.json"
SAMPLES = "samples"
PARTIAL_FOLDER = ".partial"  # files while they are written
_ABSENT = (FileNotFoundError, NotADirectoryError)


def joined(below: str, name: str) -> str:
    """A file in a folder of the store; "": at its top."""
    return f"{below}/{name}" if below else name


def sample_name(task: str) -> str:
    return f"{SAMPLES}/{task}.jsonl"


def document_of(result: RunResult) -> bytes:
    return (strict_json(run_json(result), indent=1) + "\n").encode()


def replace_results(
    store: Store,
    below: str,
    samples: Iterable[tuple[str, bytes]],
    finished: Callable[[], RunResult],
) -> RunResult:
    """Replace samples and results.json of a folder; returns the results with their samples' sizes
    and digests.

    `samples`: content by task.  `finished`: asked for the results once samples are written.  Raises
    OSError, and the former results count then, or the new ones.
    """
    files: dict[str, SampleFile] = {}
    if store.is_remote:
        for task, content in samples:
            store.put(joined(below, sample_name(task)), content)
            files[task] = _file_of(content)
        result = replace(finished(), samples=files)
        store.put(joined(below, RESULTS), document_of(result))
        return result
    folder = store.root / below
    settle(store, below)
    partial = folder / PARTIAL_FOLDER
    make_folder(partial)
    try:
        for task, content in samples:
            path = partial / sample_name(task)
            make_folder(path.parent)
            write_new(path, content)
            files[task] = _file_of(content)
        for parent in _parents(partial, files):
            sync_folder(parent)
        result = replace(finished(), samples=files)
        write_whole(partial / RESULTS, document_of(result))
    except OSError:
        with suppress(OSError):  # what is left is removed at the next start
            remove_folder(partial)
        raise
    _move(folder, files)
    return result


def settle(store: Store, below: str) -> str:
    """Finish what a killed run was replacing in a folder, or remove what it had begun; "": there
    was nothing, else what was done.  For the run that holds the lock.  Raises OSError."""
    if store.is_remote or not (store.root / below / PARTIAL_FOLDER).is_dir():
        return ""
    result = pending(store, below) or _pending_of_earlier_version(store, below)
    if result is None:
        remove_folder(store.root / below / PARTIAL_FOLDER)
        return "what a killed run had begun to write is removed"
    _move(store.root / below, result.samples or result.tasks)
    return "the results that a killed run had written are put in their place"


def pending(store: Store, below: str) -> RunResult | None:
    """The new results while they are moved into their place: they count, and the former ones no
    more.  None if there are none.  Raises OSError."""
    result = _staged(store, below)
    if result is None or not result.samples:
        return None
    for task, file in result.samples.items():
        if sample_content(store, below, task, file) is None:
            return None
    return result


def sample_content(store: Store, below: str, task: str, file: SampleFile) -> bytes | None:
    """The samples of a task as `file` describes them, from either place; None if they are not
    there."""
    name = sample_name(task)
    places = [name] if store.is_remote else [f"{PARTIAL_FOLDER}/{name}", name]
    for place in places:
        with suppress(*_ABSENT):
            content = store.get(joined(below, place))
            if _file_of(content) == file:
                return content
    return None


def result_in(store: Store, below: str) -> RunResult:
    """The results of a folder that count.  Raises OSError, ValueError."""
    result = pending(store, below)
    return result or run_of(parse_json(store.get(joined(below, RESULTS))))


def has_results(store: Store, below: str) -> bool:
    return store.has(joined(below, RESULTS)) or pending(store, below) is not None


def damaged_samples(
    store: Store, below: str, result: RunResult, reads: bool = False
) -> Iterator[str]:
    """A sentence for each sample file that is absent or of another size than the results say;
    results of an older version know no sizes.  `reads`: digests are compared too."""
    for task in result.tasks:
        name = joined(below, sample_name(task))
        size = store.size(name)
        file = result.samples.get(task)
        if size is None:
            yield f"{store.name}/{name} is missing"
        elif file is not None and size != file.bytes:
            yield f"{store.name}/{name} has {size} bytes, expected {file.bytes}"
        elif file is not None and reads and sample_content(store, below, task, file) is None:
            yield f"{store.name}/{name} is not the file that {RESULTS} names"


def _file_of(content: bytes) -> SampleFile:
    return SampleFile(len(content), sha256(content).hexdigest())


def _staged(store: Store, below: str) -> RunResult | None:
    """The results of a folder's `.partial`, if they are whole."""
    if store.is_remote:
        return None
    with suppress(ValueError, *_ABSENT):
        return run_of(parse_json(store.get(joined(below, f"{PARTIAL_FOLDER}/{RESULTS}"))))
    return None


def _pending_of_earlier_version(store: Store, below: str) -> RunResult | None:
    """Earlier versions removed results.json, moved all samples, then moved the new one."""
    result = _staged(store, below)
    if result is None or result.samples or store.has(joined(below, RESULTS)):
        return None
    for task in result.tasks:
        names = (f"{PARTIAL_FOLDER}/{sample_name(task)}", sample_name(task))
        if not any(store.has(joined(below, name)) for name in names):
            return None
    return result


def _move(folder: Path, tasks: Collection[str]) -> None:
    """Move samples, then results.json, from `.partial` to their place; a second call goes on."""
    partial = folder / PARTIAL_FOLDER
    names = [sample_name(task) for task in tasks]
    for name in names:
        if (partial / name).is_file():
            make_folder((folder / name).parent)
            move(partial / name, folder / name)
    for parent in _parents(folder, tasks):
        sync_folder(parent)
    move(partial / RESULTS, folder / RESULTS)
    sync_folder(folder)
    _remove_others(folder, folder / SAMPLES, {*names})
    remove_folder(partial)


def _parents(folder: Path, tasks: Collection[str]) -> list[Path]:
    """The folders of the tasks' samples."""
    return sorted({(folder / sample_name(task)).parent for task in tasks})


def _remove_others(folder: Path, below: Path, names: set[str]) -> None:
    """Remove samples of tasks that the results have no more."""
    for name in names_in(below):
        path = below / name
        if path.is_dir():
            _remove_others(folder, path, names)
        elif str(path.relative_to(folder)) not in names:
            remove(path)
