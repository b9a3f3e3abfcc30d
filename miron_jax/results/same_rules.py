"""Whether two runs scored a task by the same rules, so that its numbers may be compared.

Arrives: a task's result, the data and the rules of the same task in another run.  Leaves: what
differs, in a sentence.  It deliberately does not know prompts, which samples tell, or metrics.
"""

from miron_jax.files.readers import JsonObject
from miron_jax.results.records import TaskResult

# What follows from the model and its tokenizer, not from the task.
_OF_MODEL = frozenset({"bos_token", "max_length", "empty_prefix_token"})
# Rules that results of older versions do not name; they are compared where both results do.
_LATER_RULES = frozenset({"cpu_seconds", "memory_mb", "output_mb", "processes"})


def other_rule(first: TaskResult, sha1: str | None, profile: JsonObject) -> str:
    """How the task of another run, with data of this hash and these rules, differs from `first`;
    ""."""
    if first.data.git_blob_sha1 != sha1:
        return (
            f"its data differ: {first.data.git_blob_sha1} and {sha1} (hashes of {first.data.file})"
        )
    for name in sorted({*first.profile, *profile} - _OF_MODEL):
        is_of_both = name in first.profile and name in profile
        if name in _LATER_RULES and not is_of_both:
            continue
        one = first.profile.get(name)
        other = profile.get(name)
        if one != other:
            return f"its rule {name} differs: {one!r} and {other!r}"
    return ""
