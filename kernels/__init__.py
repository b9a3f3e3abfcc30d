"""Operations that carry the cost, one folder each: reference, chunked XLA, hardware versions.
Import as miron_jax.kernels.

Nothing is imported here.  transformers probes for a top-level package named `kernels`; when Python
runs in this repository's root that probe finds this folder, so it answers with a version and steps
aside for the real package.
"""

__version__ = "0.0.0"  # read only by probes that meet this folder under its bare name

if __name__ == "kernels":
    import importlib.machinery
    import importlib.util
    import os
    import sys

    _root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    _elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != _root]
    _spec = importlib.machinery.PathFinder.find_spec("kernels", _elsewhere)
    if _spec is not None and _spec.loader is not None:
        _module = importlib.util.module_from_spec(_spec)
        sys.modules["kernels"] = _module
        _spec.loader.exec_module(_module)
