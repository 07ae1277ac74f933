"""Actors: one task for each resource, which alone changes the resource's state.

- :mod:`~server.actors.registry`: at most one actor a resource; loads, unloads, supervises.
- :mod:`~server.actors.base`: the task, its mailbox, admission; :mod:`~server.actors.conversation_actor`: the
  one of a
  conversation's socket.
- :mod:`~server.actors.conversation`: what a conversation's frames do; :mod:`~server.actors.completions`: the
  one that
  runs and those that wait; :mod:`~server.actors.ledger`: what is committed, and the writes.
- :mod:`~server.actors.outbox`: the frames, as bytes for the wire; :mod:`~server.actors.attachment`: a
  connection as a
  position in it; :mod:`~server.actors.resume`: where a connection begins; :mod:`~server.actors.holding`: who
  is let in.
- :mod:`~server.actors.commands`: what REST asks of an actor.
"""
