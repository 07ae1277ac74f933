"""The schema's history: Alembic revisions with plain SQL inside, read only by :mod:`storage.migrate`."""
