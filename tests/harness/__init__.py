"""What tests need of the outside: real processes (:mod:`tests.harness.processes`), a plain client
(:mod:`tests.harness.client`)."""
