"""Ways into gobrrr from the tools that people train with already: each only observes, none is imported unasked."""
