"""`python -m fedsac` is `fedsac`."""

import sys

from fedsac.cli import main

sys.exit(main())
