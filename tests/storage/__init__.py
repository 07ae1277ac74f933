"""Storage against real Postgres."""
