"""What a model may do: tools, and what a person has to say about them.

- :mod:`~server.tools.base`: what a tool is, and how a typed function becomes one.
- :mod:`~server.tools.registry`: the tools of this process, and running one within its limits.
- :mod:`~server.tools.confirmation`: one call from being asked for to being settled. Pure.
- :mod:`~server.tools.arguments`: reading what a model wrote as arguments. Pure.

They import nothing of the actors or the engine: what they act on comes in a
:class:`~server.tools.base.ToolContext`.
"""
