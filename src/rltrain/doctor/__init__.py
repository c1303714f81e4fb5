"""What `rltrain doctor` looks at: packages and the machine, without importing anything heavy."""
