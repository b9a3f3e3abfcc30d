"""Weights: finds a model's files and the steps of its run, and reads them without torch.

checkpoints                       the model that --model names, and its checkpoints in order
training_run, step_names, remote  the steps of a run; folders in object stores
hf_config, hf_files, hf_reader    Hugging Face folders
array_tree                        levanter and EasyDeL
orbax_reader, orbax_tree, ...     Orbax
param_map, presets                trees with MaxText's names, another library's, or the user's own
fingerprint                       hash of all weights
"""
