"""What a built package, a wheel or an environment really contains."""
