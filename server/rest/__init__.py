"""REST, the pages and the documents about them.

- :mod:`~server.rest.app` puts everything together (``create_app``).
- :mod:`~server.rest.context` is what handlers may use.
- :mod:`~server.rest.declare` declares routes: path, method, structs, errors, and who may call.
- :mod:`~server.rest.schemas` has one struct for each request and response.
- :mod:`~server.rest.sessions`, :mod:`~server.rest.projects`, :mod:`~server.rest.operations` and
  :mod:`~server.rest.pages` are the routes.
- :mod:`~server.rest.guard` looks at every request first, :mod:`~server.rest.serving` runs a route,
  :mod:`~server.rest.envelope` writes its answer.
- :mod:`~server.rest.openapi` makes the OpenAPI document from the declarations.
"""
