import sys
from pathlib import Path

import hypothesis

sys.path.insert(0, str(Path(__file__).parent))
hypothesis.settings.register_profile("default", deadline=None, max_examples=60, print_blob=True)
hypothesis.settings.load_profile("default")
