"""Runs each SIPp caller directly against its callee. If this fails, the scenario has an error.

An end-to-end test puts Tidegate between the two. It only tests Tidegate if the two work without it.
"""

from tidegate_bench import sipp
from tidegate_bench.process import Stage
from tidegate_bench.sockets import LOCALHOST

PAIRS = {
    "uac": "uas",
    "uac-routes": "uas-record-route",
    "uac-reinvite": "uas-reinvite",
    "uac-rport": "uas-record-route",
    "uac-cancel": "uas-cancel",
    "uac-busy": "uas-busy",
    "uac-hung-up": "uas-hangs-up",
    "uac-message": "uas-message",
    "uac-options": "uas-options",
    "uac-overload": "uas",
    "uac-register": "uas-register",
    "uac-browser": "uas-record-route",
}
CALLS = 40


def main(arguments: list[str]) -> int:
    failed = 0
    with Stage() as stage:
        running = []
        for caller, callee in PAIRS.items():
            answering = sipp.callee(stage, f"{caller}-callee", callee)
            target = f"{LOCALHOST}:{answering.port}"
            calling = sipp.caller(stage, caller, target, rate_cps=200, calls=CALLS, scenario=caller, hold_ms=100)
            running.append((caller, callee, calling, answering))
        for caller, callee, calling, answering in running:
            calling.process.wait(60)
            asked, answered = calling.calls(), answering.finish()
            well = asked.clean and answered.clean and asked.created == answered.created == CALLS
            failed += not well
            print(f"{'ok  ' if well else 'FAIL'}  {caller} with {callee}")
            if not well:
                print(f"      {asked}\n      {answered}")
    return 1 if failed else 0
