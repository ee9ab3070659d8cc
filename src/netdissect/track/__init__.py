"""What events mean: sequence spaces, round trips, state machines, timers. Knows no protocol."""
