"""Measurements and demonstrations of Tidegate, and the checks of this repository.

`demonstrations` has a module for each `scripts/show-NAME`, `tools` one for each other command. The modules here are
what they share: processes and their cost, sockets and their drops, peers, loads, records and tables.

At run time Python's standard library is enough (Debian 12: 3.11).
"""
