"""The texts of a run's scored requests -> a frozen request set, which `--requests` and Marin's
runner read.

Arrives: the run's `TaskKind`s, an output folder.  Leaves: requests.jsonl and manifest.json in it.
It deliberately does not know scores.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence

from miron_jax import __version__
from miron_jax.evaluation.task_kinds.interface import TaskKind
from miron_jax.files.readers import Json, JsonObject
from miron_jax.files.store import Store
from miron_jax.results.output import REQUESTS
from miron_jax.runtime.progress import Progress


def save_requests(kinds: Sequence[TaskKind], store: Store, progress: Progress) -> None:
    counts: Counter[str] = Counter()

    def lines() -> Iterator[bytes]:
        for kind in kinds:
            name = kind.source.task.name
            for doc_id, context, continuation, gold in kind.pairs():
                counts[name] += 1
                request = {
                    "task": name,
                    "doc_id": doc_id,
                    "context": context,
                    "continuation": continuation,
                }
                if gold is not None:
                    request["gold"] = gold
                yield f"{json.dumps(request, ensure_ascii=False)}\n".encode()

    store.put(f"{REQUESTS}/requests.jsonl", lines())
    for kind in kinds:
        if not counts[kind.source.task.name]:
            progress.say(
                f"{kind.source.task.name} is not in the request set: it has no pairs whose right "
                "answer is published"
            )
    manifest: JsonObject = {
        "version": "1",
        "source": f"miron_jax {__version__}",
        "tasks": dict(counts),
    }
    tasks = [kind.source.task for kind in kinds if counts[kind.source.task.name]]
    reading = {task.name: getattr(task.profile, "special_tokens", "control") for task in tasks}
    as_text: list[Json] = [name for name in reading if reading[name] == "text"]
    if as_text:
        manifest["special_tokens_as_text"] = as_text
    store.put(
        f"{REQUESTS}/manifest.json", json.dumps(manifest, ensure_ascii=False, indent=1).encode()
    )
