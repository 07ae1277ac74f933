"""What is kept, in Postgres. The only package that knows asyncpg (and redis).

Open it with :func:`storage.store.open_store` on a database that :mod:`storage.migrate` brought up to date.
Without a configured database, :class:`storage.embedded.EmbeddedPostgres` gives one.

==================  ==================================================================================
module              what for
==================  ==================================================================================
``store``           the door: everything below, and the tasks that belong to it
``records``         what goes in and comes out
``errors``          what it raises: unavailable, fenced, duplicate, refused
``sessions``        taking a session over (the fence), appending, reading, deleting
``runs``            beginning a run, its turns, its one end
``projects``        taking a project over with all its conversations, reading, deleting
``canvases``        whole changes of a canvas in, pages out
``traces``          reading runs, their steps and tool calls
``group_commit``    appends of many sessions in one transaction
``checkpoints``     write-behind of streamed text
``interruption``    settles what a dead owner left running, within the transaction that takes the session
``requests``        remembered request ids, and why a guarded write touched nothing
``messages``        rows as the protocol's messages
``nodes``           who serves, and the sweep of the dead
``coordination``    the seam for more than one node
``database``        pool, bounds, circuit, translation of errors
``embedded``        our own Postgres; with ``binaries`` (whose, where) and ``lifeline`` (a child process)
``migrate``         schema; Alembic and ``migrations/`` are imported only there
``cursors``         keyset paging
``tasks``           background tasks of what is open
==================  ==================================================================================
"""
