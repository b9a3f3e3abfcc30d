"""What a task's delimiters are in a chat: the end of a question, and how an answer begins.

Arrives: a profile with `chat`.  Leaves: ends of questions, and answers.  It deliberately does not
know templates.

A delimiter of words is how the assistant's turn begins, and is scored with the answer; of another,
what is not white space ends the user's turn.

    delimiter      question's end   answer
    " "                             blue
    "\\nAnswer: "                    Answer: blue
    " ->"          " ->"            blue
"""

from miron_jax.definitions.records import Profile, Wording

Turns = tuple[tuple[str, str], ...]  # of the user, of the assistant


def lead_of(profile: Wording) -> str:
    """What every answer begins with."""
    delimiter = profile.delimiter + _joined(profile)
    if any(map(str.isalnum, delimiter)):
        return delimiter.lstrip()
    return ""


def end_of_question(profile: Wording) -> str:
    return "" if lead_of(profile) else profile.delimiter.rstrip()


def answer_of(continuation: str, profile: Wording) -> str:
    """The assistant's turn."""
    text = continuation.removeprefix(_joined(profile))
    if profile.answer_start == "stripped":
        text = text.lstrip()
    return lead_of(profile) + text


def _joined(profile: Wording) -> str:
    return profile.joined_delimiter if isinstance(profile, Profile) else ""
