"""Training steps of libraries' own models at random weights, as written and with one remedy applied by hand."""
