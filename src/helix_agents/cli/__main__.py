"""`python -m helix_agents.cli`, the same as `helix`."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
