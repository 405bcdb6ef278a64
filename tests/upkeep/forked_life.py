"""Fork a process for each line of the standard input, and let the kernel kill it after some CPU time.

The modules are loaded once, so that a kill costs milliseconds. CPU time does not depend on other work on the machine.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback

HANG_S = 120


def main() -> None:
    """Run ``main(*arguments)`` of a module in a child for each line, and print how the child ended."""
    module = importlib.import_module(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        cpu_s, *arguments = json.loads(line)
        child = os.fork()
        if not child:
            try:
                signal.alarm(HANG_S)
                # Without a handler the kernel ends the process wherever it is, also in a library.
                signal.setitimer(signal.ITIMER_PROF, cpu_s)
                module.main(*arguments)
            except BaseException:  # noqa: BLE001 - nothing of the parent may run in the child
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
