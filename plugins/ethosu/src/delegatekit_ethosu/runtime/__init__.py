"""Runs blobs on the host: the command stream of an Ethos-U55, or the TOSA program in Arm's reference model."""
