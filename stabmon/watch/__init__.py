"""A run in the terminal: the page's words and numbers, from its run log or from the address that serves it."""
