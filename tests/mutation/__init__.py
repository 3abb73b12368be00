"""Faults put into the Totem engine on purpose, to see that the simulator with the checker notices each."""
