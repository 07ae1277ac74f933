"""Tests of the whole server, on real Postgres and mostly over real sockets."""
