"""The command: `python -m idlewise`, or `idlewise` where the package is installed."""

import os
import signal
import sys

from ._native import main as run


def main() -> None:
    """Runs the command with this process's arguments, and ends the process with its status."""
    # As in any command: it has handlers of its own for what it must clean up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Another folder named idlewise in the current one is not this package.
    os.environ["PYTHONSAFEPATH"] = "1"
    status = run(["idlewise", *sys.argv[1:]], [sys.executable, "-m", "idlewise"])
    sys.stdout.flush()
    # Threads of a replay that was given up do not keep the process.
    os._exit(status)


if __name__ == "__main__":
    main()
