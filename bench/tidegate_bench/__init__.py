"""Measurements and demonstrations of Tidegate, and the checks of this repository.

`demonstrations` has a module for each `scripts/show-NAME`, `tools` one for each other command. The modules here have
their common parts: processes and their cost, sockets and their drops, peers, loads, records and tables.

At run time only Python's standard library is needed (version 3.11, as in Debian 12).
"""
