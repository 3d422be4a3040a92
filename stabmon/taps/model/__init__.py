"""What the model consists of: norm layers, blocks, tokens that count, placement; and whether it is pretrained."""
