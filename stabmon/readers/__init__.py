"""Readers turn a recorded file into snapshots. One file per format."""
