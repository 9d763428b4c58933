"""What ``scripts/bench`` measures, one file for each benchmark."""
