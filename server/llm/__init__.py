"""Models: where the words come from.

- ``base``: the seam to the engine. ``catalog``: which name is which model.
- ``openai``: any OpenAI-compatible endpoint; ``sse`` and ``chunks`` decode what it streams.
- ``local``: the small model inside this process. ``scripted``: models that play a script.
- ``stub``: an OpenAI-compatible endpoint that plays the same scripts over the wire (SCRIPTS.md).
"""
