"""Measures of attention heads: functions of `M`, independent of any model. `registry` names each once."""
