"""What is read off the history of a model in training: milestones, charts, a labelled dataset. Several studies share it."""
