"""How well the detectors do on trainings that really run: small ones, with faults and without, labelled by outcome."""
