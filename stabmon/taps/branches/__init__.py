"""What every sub-layer adds to the residual stream."""
