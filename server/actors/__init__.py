"""Actors: one task for each resource, which alone changes the resource's state.

=========================  ===========================================================================
module                     what for
=========================  ===========================================================================
``registry``               at most one actor a resource; loads, unloads, supervises
``base``, ``kinds``        the task, its mailbox, admission; of what kind
``conversation_actor``     the actor of a conversation's socket
``conversation``           what a conversation's frames do, its own or a project's
``completions``            the completion that runs and those that wait
``progress``, ``planning`` a completion's turns; what it is to do
``calls``                  the tool calls that are open
``ledger``                 what is committed of a session, and the writes
``project``                the actor of a project's socket, which owns the next three
``project_canvas``         what canvas frames and the model's tools do
``project_conversations``  the project's conversations that are in memory
``project_ledger``         what is committed of a project and its canvas, and the writes
``host``                   what a conversation needs of either actor
``commands``               what REST asks of an actor
``conversation_commands``  how a conversation does it
``requests``, ``showing``  repeats; messages for a snapshot
``outbox``                 the frames, as bytes for the wire
``attachment``             a connection as a position in it
``resume``, ``holding``    where a connection begins; who is let in
``mailbox``                the one way in which work reaches an actor
=========================  ===========================================================================
"""
