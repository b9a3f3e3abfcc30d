"""Programs that a model wrote, run so that neither they nor the machine come to harm; `sandbox.py`
is where to begin."""
