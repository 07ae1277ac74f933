"""The contract between a client and the server. Imports the standard library, msgspec, orjson and ulid only.

============================  ==========================================================================
``SPEC.md``                   the numbered rules
``ids``                       ULIDs, run ids, the clock
``codes``, ``errors``         the one table of error and close codes; what is raised
``client_frames``             what clients send
``server_frames``             what the server sends, snapshots included
``codec``, ``strict``         bytes to frames and back; JSON as this protocol takes it
``session``                   the session model, its export and import
``run``, ``tool_call``        entities of executions
``canvas``                    nodes and edges, drafts and patches
``schema``                    makes ``asyncapi.json``, ``schema.json`` and the tables of ``SPEC.md``
============================  ==========================================================================
"""
