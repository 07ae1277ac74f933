"""What the server counts, for Prometheus; one :class:`Metrics` a server, so that two in a process stay apart.

Names carry their unit. Labels have few values, all from the code; ids and principals are never labels.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Of what :meth:`Metrics.render` returns."""

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metric objects; whoever does the counted thing increments them."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()

        # The gate.
        self.connections: Final = self._gauge("connections", "Connections open now.", "kind")
        """Label ``kind``: ``http``, ``websocket``."""
        self.refused: Final = self._counter("connections_refused", "Connections beyond the limit.")
        self.timed_out: Final = self._counter("requests_timed_out", "Requests not complete in time.")

        # REST.
        self.requests: Final = self._counter("http_requests", "HTTP requests answered.", "route", "status")
        """Label ``route``: the path as declared, never as asked."""
        self.request_seconds: Final = self._histogram("http_request_seconds", "Time to answer.", "route")

        # Sockets and resources.
        self.resources: Final = self._gauge("resources", "Resources loaded now.", "kind")
        """Label ``kind``: ``conversation``, ``project``."""
        self.frames_sent: Final = self._counter("frames_sent", "Frames handed to a transport.")
        self.frames_received: Final = self._counter("frames_received", "Frames received.")
        self.bad_frames: Final = self._counter("bad_frames", "Frames refused as bad.")
        self.replays: Final = self._counter("replays", "Connections resumed by replay.")
        self.snapshots: Final = self._counter("snapshots", "Connections resumed by a snapshot.")
        self.closes: Final = self._counter("closes", "WebSocket closes by this server.", "code")
        self.slow_closes: Final = self._counter("slow_closes", "Connections closed as slow consumers.")
        self.outbox_bytes: Final = self._gauge("outbox_bytes", "Bytes kept for replay.")

        # Runs.
        self.runs: Final = self._counter("runs", "Runs ended, by status.", "status")
        self.running: Final = self._gauge("runs_running", "Runs going on now.")
        self.first_token_seconds: Final = self._histogram(
            "first_token_seconds", "From the start of a run to the model's first token."
        )
        self.run_seconds: Final = self._histogram("run_seconds", "From the start of a run to its end.")

        # Storage.
        self.group_commits: Final = self._counter("group_commits", "Transactions of the group commit.")
        self.group_commit_writes: Final = self._counter(
            "group_commit_writes", "Writes in those transactions."
        )
        self.storage_failures: Final = self._counter("storage_failures", "Calls that found no storage.")
        self.fenced: Final = self._counter(
            "fenced", "Writes refused because another process owns the resource."
        )

    def render(self) -> bytes:
        """All metrics as Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"turnwire_{name}", meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"turnwire_{name}", meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        return Histogram(f"turnwire_{name}", meaning, labels, registry=self.registry, buckets=_SECONDS)
