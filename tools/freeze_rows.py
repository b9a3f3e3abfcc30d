"""Write the rows of miron-gen and eval-ua-tion-gen that come with the package.

python tools/freeze_rows.py      # after a new VERSION of either
"""

from miron_jax.tasks import miron
from miron_jax.tasks.generators.eval_uation_gen import sets

if __name__ == "__main__":
    miron.export(miron.FROZEN, miron.ROWS)
    sets.freeze()
