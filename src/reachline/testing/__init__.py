"""What tests need, ours and our users': waiting on conditions, real parts, builders, faults. Nothing imports it back."""
