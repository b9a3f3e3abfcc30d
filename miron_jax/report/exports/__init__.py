"""Results for other programs: Markdown, CSV, lm-eval's and nanochat's files, TensorBoard, Weights &
Biases.

Arrives: `RunResult`s.  Leaves: texts, files, logged numbers.  It deliberately computes no score.
"""
