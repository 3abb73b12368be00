"""The rows of the security table in the errata, each by name, on Guard and on the Totem engine behind it."""
