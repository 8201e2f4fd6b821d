#!/bin/sh
# Tidegate cannot run on a machine without the address, so the check succeeds there at once.
ip -brief address show to 203.0.113.10 | grep -q . || exit 0
exec curl --silent --fail --max-time 1 --output /dev/null http://127.0.0.1:8060/healthz
