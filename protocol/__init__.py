"""The contract between a client and the server. Imports the standard library, msgspec, orjson and ulid only.

================================  ======================================================================
``SPEC.md``                       the numbered rules
``ids``                           ULIDs, run ids, the clock
``codes``, ``errors``             the one table of error and close codes; what is raised
``client_frames``                 what clients send
``server_frames``, ``views``      what the server sends, and the parts of it that snapshots are made of
``codec``, ``strict``             bytes to frames and back; JSON as this protocol takes it
``canonical``                     JSON in one form only, for hashes and exports
``session``, ``message``          the session model
``session_export``                the document that an exported session is
``session_errors``                what goes wrong with sessions
``run``, ``tool_call``            what executions leave behind
``canvas``                        nodes and edges, drafts and patches
``schema``, ``asyncapi``          make ``schema.json``, ``asyncapi.json`` and the tables of ``SPEC.md``
================================  ======================================================================
"""
