"""What things cost, as ratios against a bare peer in the same run: ``python -m benchmarks`` (``make bench``).

- :mod:`benchmarks.frames`: a frame on its way to a client, against a bare ``websockets`` server.
- :mod:`benchmarks.group_commit`: durable appends, with and without shared commits.
- :mod:`benchmarks.canvas`: canvas batches and tool calls through a started server, against bare peers.
"""
