"""What a user sees and presses while lwa works: progress, the stopwatch, Ctrl-C."""
