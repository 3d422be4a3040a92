"""`stabmon bench`: what stabmon costs on this machine, measured, never taken from a page."""
