"""A model's description, its network and its weights.  Import the modules; nothing is imported
here.

config, costs, visibility    `ModelConfig`; FLOPs and costs of rows; which tokens see which
network                      models that the decoder does not compute, as functions
own, own_probe               a user's own model, and the rows that test its contract
encoder                      classifiers of texts
decoder/                     one network for most families
families/                    config.json -> `ModelConfig`, or a network beside the decoder
stateful/                    networks that carry a state from token to token
checkpoints/                 finds a model's files, reads its weights
demo/                        the model that comes with the package
"""
