"""The first statement of a packaged program; everything else is in `desktop/__main__.py`."""

import sys

from desktop.__main__ import main

sys.exit(main())
