"""`python -m helix_agents.conformance module:harness`."""

from .run import main

raise SystemExit(main())
