"""`python -m reachline`: the same entry as the `reachline` script, also for the processes that `up` starts."""

import sys

from reachline.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
