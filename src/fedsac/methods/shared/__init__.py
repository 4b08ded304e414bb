"""Parts that several methods share: updates and their largest entries, target scores, calibrated submodels."""
