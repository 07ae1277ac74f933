"""Completions: from a request to its last frame."""
