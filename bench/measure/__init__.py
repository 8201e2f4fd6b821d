"""What every measuring script shares: processes and what they cost, sockets and what they
drop, SIPp and what it counts, Tidegate and how it is started, and the record of a run.

Python's standard library only; Debian's python3 is enough.
"""
