"""A black-box suite for servers of the Turnwire protocol, and its runner.

``python -m scenarios run scenarios/ --url ws://127.0.0.1:8080``; FORMAT.md describes the
files. It knows the protocol and nothing of any server.

==================  ====================================================================================
``runner``          :func:`~scenarios.runner.run_scenarios`: chooses, runs side by side, reports
``format``          the scenario file: structs and reading
``steps``           what each step does
``findings``        what steps share: time-outs, failing with a diff
``world``           the state of one run: variables, clients, lists, HTTP, restarts
``client``          a named client: its reader, its position, what it checks of every frame
``wire``            one WebSocket connection that can lie dead, read slowly or break off
``invariants``      what holds for every frame of every scenario
``canvas``          a canvas as the frames of its changes tell of it
``matchers``        is a value as expected, and where not
``values``          ``${…}`` and paths
``checks``          the ``assert`` step: statements over collected frames
``capabilities``    what the server under test can do
``report``          console and JUnit
``conn/ stream/ …``  the scenarios
==================  ====================================================================================
"""
