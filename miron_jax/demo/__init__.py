"""The demo: a small Llama that ships in the package, with six checkpoints of its training.

Arrives: nothing.  Leaves: `FOLDER`, a model folder like any other (config.json, tokenizer files) whose weights lie in
steps/<N> as Orbax checkpoints.  It deliberately does not know how they are read, trained or scored.
"""

from pathlib import Path

NAME = "demo"  # what --model calls it
FOLDER = Path(__file__).parent / "data"
