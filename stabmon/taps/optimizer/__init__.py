"""What the optimizer does: weights, updates, Adam's state."""
