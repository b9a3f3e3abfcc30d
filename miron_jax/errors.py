"""The one exception for input that a user can mend, and the exit statuses.

Arrives: nothing.  Leaves: `InputError`.  It knows nothing of stages: whoever meets the bad input words the sentence.
"""

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 75  # exit statuses; 0: done


class InputError(Exception):
    """Bad input, in one sentence: what, where, what was expected, what to do.  The command line exits with status 2."""
