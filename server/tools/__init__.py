"""What a model may do: tools, and what a person has to say about them.

- :mod:`~server.tools.base`: what a tool is, and how a typed function becomes one.
- :mod:`~server.tools.registry`: the tools of this process, and running one within its limits.
- :mod:`~server.tools.confirmation`: one call from being asked for to being settled, by what happens to it;
  :mod:`~server.tools.call_states`: its states. Pure.
- :mod:`~server.tools.arguments`: reading what a model wrote as arguments;
  :mod:`~server.tools.answers`: the schema of a person's answer. Pure.
- :mod:`~server.tools.builtin`: those that are always there (:mod:`~server.tools.search`,
  :mod:`~server.tools.canvas`, :mod:`~server.tools.ask_user`, :mod:`~server.tools.clock`).
- :mod:`~server.tools.mcp`: those of MCP servers; :mod:`~server.tools.mcp_client` alone imports the SDK.

They import nothing of the actors or the engine: what they act on comes in a
:class:`~server.tools.base.ToolContext`.
"""
