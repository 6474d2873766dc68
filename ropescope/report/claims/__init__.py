"""The claims of both papers, one rule each: what the paper says, what the recorded runs say, and whether the two agree."""
