"""Other programs and processes, signals, the terminal, accounts and the sandbox."""
