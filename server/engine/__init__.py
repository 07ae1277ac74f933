"""The engine: one completion from the prompt to its end.

- :mod:`~server.engine.completion` does: calls the model, keeps the time limits.
- :mod:`~server.engine.turn` decides: which frames follow from what the model said;
  :mod:`~server.engine.sentences`.
- :mod:`~server.engine.live_run`: a run and the gate that makes its end one; :mod:`~server.engine.recorder`:
  what the
  end leaves in the store and on the wire; :mod:`~server.engine.prompt`: what the model is shown.

It imports nothing of the actors: what it has to tell them goes through callables that it is given.
"""
