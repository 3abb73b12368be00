"""Which cells of Totem's state × event table runs of the simulator reach."""
