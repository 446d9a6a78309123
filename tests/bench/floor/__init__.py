"""Bare programs that move the same bytes over the same number of processes, and do nothing else."""
