#!/bin/sh
# Without the address Tidegate cannot run on this machine, so only the machine with the address is checked.
ip -brief address show to 203.0.113.10 | grep -q . || exit 0
exec curl --silent --fail --max-time 1 --output /dev/null http://127.0.0.1:8060/healthz
