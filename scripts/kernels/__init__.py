"""The kernels that a command can be run on; `scripts/kernel` is the way in."""
