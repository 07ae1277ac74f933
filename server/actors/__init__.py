"""Actors: one task for each resource, which alone changes the resource's state.

- :mod:`~server.actors.registry`: at most one actor a resource; loads, unloads, supervises.
- :mod:`~server.actors.base`: the task, its mailbox, admission; :mod:`~server.actors.kinds`: of what.
- :mod:`~server.actors.conversation_actor`: the one of a conversation's socket. :mod:`~server.actors.conversation`:
  what its frames do; :mod:`~server.actors.completions`: the completion that runs and those that wait;
  :mod:`~server.actors.progress`, :mod:`~server.actors.planning`, :mod:`~server.actors.calls`: its turns and tool
  calls; :mod:`~server.actors.ledger`: what is committed, and the writes; :mod:`~server.actors.showing`: messages
  for a snapshot; :mod:`~server.actors.requests`: repeats.
- :mod:`~server.actors.project`: the one of a project's socket, which owns :mod:`~server.actors.project_canvas`,
  :mod:`~server.actors.project_conversations` and the :mod:`~server.actors.project_ledger`.
- :mod:`~server.actors.host`: what a conversation needs of either actor.
- :mod:`~server.actors.outbox`: the frames, as bytes for the wire; :mod:`~server.actors.attachment`: a connection as
  a position in it; :mod:`~server.actors.resume`: where a connection begins; :mod:`~server.actors.holding`: who is
  let in.
- :mod:`~server.actors.commands`: what REST asks of an actor; :mod:`~server.actors.conversation_commands`: how a
  conversation does it.
"""
