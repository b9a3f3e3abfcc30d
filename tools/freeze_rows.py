"""Write the rows of miron-gen and eval-ua-tion-gen that come with the package.

python -m tools.freeze_rows      # after a new VERSION of either
"""

from miron_jax.tasks import miron
from tools.eval_uation_gen import sets

if __name__ == "__main__":
    miron.export(miron.FROZEN, miron.ROWS)
    sets.freeze()
