"""How sharp attention is: logits and entropy, from the forward's own calls."""
