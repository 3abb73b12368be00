"""`python -m ordercast`."""

import sys

from ordercast.cli import main

sys.exit(main())
