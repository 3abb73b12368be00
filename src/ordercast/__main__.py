"""`python -m ordercast`."""

import sys

from ordercast.cli.main import main

sys.exit(main())
