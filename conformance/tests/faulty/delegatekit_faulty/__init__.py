"""Backends with one seeded fault each, which the suite must find.

The environment variable `DELEGATEKIT_FAULT` names the fault of `catalogue.FAULTS` that the backend "faulty" has.
"""
