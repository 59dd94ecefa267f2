"""What an answer may look like: JSON Schemas and grammars, read and checked before a model has to follow them.

Nothing here knows a model. The model process turns what is checked here into the set of tokens that may come next.
"""
