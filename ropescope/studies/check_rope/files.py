"""Names of files and rows in the run folders of this study."""

from __future__ import annotations

LAYERS, ANGLES = "layers.json", "angles.json"
FAULTS, ALARMS = "faults.json", "alarms.json"
SO_FAR = "so_far.json"
RIGHT = "none, in bfloat16"
"""The row of a model without a fault, in the table of faults."""
PERMUTED = "weights permuted for the other pairing"
"""The fault that no rotation shows, only weights."""
AS_IT_IS = "as it is"
"""The variant of a model whose settings were not changed."""
