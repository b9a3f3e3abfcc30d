"""The decoder, its description and the readers of its checkpoints.  Import the modules; nothing is imported here.

config, rope, families/    config.json -> `ModelConfig`; a file for each family of models
decoder, visibility        one network for all families (`leaf_name`: the names of its weights); attention over a batch
cache                      the key/value cache of generation and dialogues
own                        a user's own model instead of the decoder
checkpoints                finds a model's files; training_run: the steps of a run; remote: folders in object stores
hf_*                       Hugging Face folders (names of tensors: families/naming)
orbax_reader, orbax_layout, param_map    Orbax trees: the decoder's names, MaxText's, and those of --param_map
sharding, fingerprint, costs             which device has which part of a weight; hash of all weights; FLOPs
"""
