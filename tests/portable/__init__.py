"""The package where its users are, without those machines: ``scripts/test --portable``."""
