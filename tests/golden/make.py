"""Every suite on made-up data and the demo model -> golden files: results.json and samples, less what varies.

    python -m tests.golden.make [--into FOLDER] [GROUP ...]

Arrives: names of groups, all where none is named.  Leaves: SUITE.json of each suite in FOLDER, tests/golden where none is
named, and GROUP.run.json of what a run says of all its suites together.  It deliberately knows nothing of miron_jax but its
command: whatever moves inside the package, this file stays as it is.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.golden.data import write_all

FOLDER = Path(__file__).resolve().parent
REPOSITORY = FOLDER.parent.parent

# One run a group, so that each program is compiled once: the group's own flags, then suite -> where its data lie ("": made
# by the package itself).  512 tokens are more than the demo model was trained at: few-shot examples fit.  The other group
# has the default, 96, which cuts.
GROUPS: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "open": (
        ("--max_length=512", "--limit=3"),
        {
            **dict.fromkeys(("core", "gauntlet", "gauntlet-cot-fix", "gauntlet-fixed"), "icl"),
            **{"miron": "miron", "miron-gen": "", "miron-gen-prefixspace": ""},
            **dict.fromkeys(("eval-ua-tion", "eval-ua-tion-text", "eval-ua-tion-text-refcompat"), "uation"),
            **{"eval-ua-tion-gen": "", "eval-ua-tion-gen-text": "", "olmes": "olmes", "text": "text"},
        },
    ),
    "tokens": (("--limit=3", "--token_stats"), {"expert": "expert"}),
    "programs": (
        ("--limit=2", "--allow_code_execution"),
        {"gauntlet-programming": "icl", "mera-v1": "mera-v1", "mera-v1.2": "mera-v1.2"},
    ),
}
_FLAGS = ("--model=demo", "--steps=latest", "--items_per_category=12", "--allow_changed_data")

# What another machine, day, folder or version of a package makes different.
_VARIES = {
    # tasks and suites stand in files of their own; digests of samples hang on the last digit
    "results": {"environment", "tasks", "suites", "samples"},
    "config": {"data_dir", "output", "attention", "token_budget", "sharding", "mesh", "resume"},
    "checkpoint": {"folder", "fingerprint", "commits", "tokenizer_from"},
}
_STEADY = {
    "speed": {"requests", "unique_tokens", "plain_tokens"},
    "generation": {"drawn_tokens", "prompt_tokens"},
    "self_check": {"tolerance"},
}


def arguments_of(group: str, data: Path, output: Path) -> list[str]:
    """`eval` and its flags."""
    more, suites = GROUPS[group]
    pairs = ",".join(f"{suite}={data / folder}" for suite, folder in suites.items() if folder)
    return [
        "eval", *_FLAGS, *more, f"--tasks={','.join(suites)}", f"--data_dir={pairs}", f"--output={output}",
        "--compilation_cache=",
    ]  # fmt: skip


def in_a_process(arguments: Sequence[str], data: Path) -> None:
    """`miron-jax` as a user starts it; `data` has a folder for what suites make by themselves."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1", "MIRON_JAX_DATA": str(data / "cache")}
    command = [sys.executable, "-m", "miron_jax", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"eval ended with status {done.returncode}:\n{done.stderr[-3000:]}")


def goldens_of(group: str, output: Path, data: Path) -> dict[str, dict[str, Any]]:
    """File name -> what stands in it."""
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    files = {f"{group}.run.json": _run(results)}
    for suite, each in results["suites"].items():
        tasks = {name: entry for name, entry in results["tasks"].items() if name.startswith(f"{suite}/")}
        paths = {name: output / "samples" / f"{name}.jsonl" for name in tasks}
        lines = {name: path.read_text(encoding="utf-8").splitlines() for name, path in paths.items()}
        samples = {name: [json.loads(line) for line in each] for name, each in lines.items()}
        files[f"{suite}.json"] = {"results": {**each, "tasks": tasks}, "samples": samples}
    return {name: _steady(content, str(data)) for name, content in files.items()}


def _run(results: dict[str, Any]) -> dict[str, Any]:
    """What a run says of all its suites together."""
    computed = {key: value for key, value in results.items() if key not in _VARIES["results"]}
    for part in ("config", "checkpoint"):
        computed[part] = {key: value for key, value in computed[part].items() if key not in _VARIES[part]}
    for part, kept in _STEADY.items():
        computed[part] = computed[part] and {key: value for key, value in computed[part].items() if key in kept}
    return computed


def _steady(value: Any, data: str) -> Any:
    """Six digits of a number; no time, no temporary folder, and no hash of a parquet file, which hangs on who wrote it."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, str):
        return value.replace(data, "DATA")
    if isinstance(value, list):
        return [_steady(each, data) for each in value]
    if isinstance(value, dict):
        parquet = str(value.get("file")).endswith(".parquet")
        dropped = {"seconds", "compile_seconds", "bounded_by", "no_cgroup", *(["git_blob_sha1"] if parquet else [])}
        return {key: _steady(each, data) for key, each in value.items() if key not in dropped}
    return value


def lines_of(golden: dict[str, Any]) -> Iterator[str]:
    """JSON with one thing a line: a field of a task's entry, a sample."""

    def flat(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def entries(fields: dict[str, Any], indent: str, depth: int) -> Iterator[str]:
        for i, (key, value) in enumerate(fields.items()):
            comma = "," if i + 1 < len(fields) else ""
            if depth and isinstance(value, dict) and value:
                yield f"{indent}{flat(key)}:{{"
                yield from entries(value, f"{indent} ", depth - 1)
                yield f"{indent}}}{comma}"
            elif depth and isinstance(value, list) and value and isinstance(value[0], dict):
                yield f"{indent}{flat(key)}:["
                yield from (f"{indent} {flat(row)}{',' if j + 1 < len(value) else ''}" for j, row in enumerate(value))
                yield f"{indent}]{comma}"
            else:
                yield f"{indent}{flat(key)}:{flat(value)}{comma}"

    yield "{"
    yield from entries(golden, "", 3)
    yield "}"


def make(group: str, into: Path, run: Callable[[Sequence[str], Path], object] = in_a_process) -> None:
    """Writes the golden files of a group; `run` runs `miron-jax` with these arguments."""
    with tempfile.TemporaryDirectory(prefix="miron-golden-") as scratch:
        data = Path(scratch).resolve()
        write_all(data)
        run(arguments_of(group, data, data / "out"), data)
        into.mkdir(parents=True, exist_ok=True)
        for name, golden in goldens_of(group, data / "out", data).items():
            (into / name).write_text("".join(f"{line}\n" for line in lines_of(golden)), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make")
    parser.add_argument("--into", type=Path, default=FOLDER)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}; all where none is named")
    requested = parser.parse_args()
    for name in requested.groups or GROUPS:
        make(name, requested.into)
