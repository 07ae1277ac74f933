"""The rules of a canvas, pure: no await, no store, no clock.

- :mod:`~server.canvas.edits`: what a frame or a tool wants, item by item, with what is malformed in it.
- :mod:`~server.canvas.document`: the canvas in memory, and a whole change of it.
- :mod:`~server.canvas.plan`: what becomes of edits: one whole change, or none and why.
- :mod:`~server.canvas.merge`: JSON merge patch, and the size of ``data``.
"""
