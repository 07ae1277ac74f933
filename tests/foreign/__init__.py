"""Clients that share no code with the project."""
